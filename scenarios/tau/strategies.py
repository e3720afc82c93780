"""Registers the strategies of both seats, as in `--seat user=MODEL@URL,strategy=react`.

Without a strategy, a user's answer is its message and an assistant calls tools in its back end's format.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.policies import Policy
from marl_gem.registry import Need, register_strategy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau import assistants
from marl_gem.scenarios.tau.domain import Domain
from marl_gem.scenarios.tau.env import ASSISTANT, USER, TauEnv
from marl_gem.scenarios.tau.scripts import ScriptPolicy

EXAMPLES = "train"
"""The split whose tasks serve as examples."""

_HERE = "marl_gem.scenarios.tau"
_STRATEGIES: tuple[tuple[str, str, str, tuple[Need, ...], str], ...] = (
    (USER, "react", "users:react", (), "Writes a thought before each message; it is not sent."),
    (USER, "verify", "users:verify", ("judge",), "A judge checks each message; a rejected one is sampled again."),
    (
        USER,
        "reflect",
        "users:reflect",
        ("judge",),
        "A judge checks each message; a rejected one is rewritten with the judge's reason.",
    ),
    (ASSISTANT, "act", "assistants:act", (), "Every answer is one action, written as JSON."),
    (ASSISTANT, "react", "assistants:react", (), "As act, after a thought that is not sent."),
    (USER, "official", "official_seats:user", ("env",), "As for published scores; requires official=true."),
    (
        ASSISTANT,
        "official",
        "official_seats:assistant",
        ("env",),
        "As for published scores; requires official=true.",
    ),
    (ASSISTANT, "few-shot", "strategies:few_shot", ("env",), "Five solved dialogues are in its instructions."),
)


def register_strategies(scenario: str) -> None:
    """Register all strategies for a scenario or a family."""
    for agent, name, where, needs, what in _STRATEGIES:
        register_strategy(scenario, agent, name, f"{_HERE}.{where}", description=what, needs=needs)


def few_shot(policy: Policy, env: MultiAgentEnv) -> Policy:
    """`assistants.few_shot` with examples from the scenario's train tasks.

    Args:
        policy: the policy to wrap.
        env: an env of the scenario, for its domain and split.

    Raises:
        ConfigError: the scenario is not a TAU domain, has no train tasks, or plays them itself.
    """
    if not isinstance(env, TauEnv):
        raise ConfigError(f"{env.scenario} has no TAU tasks, which few-shot makes its examples of")
    if EXAMPLES not in env.domain.splits or env.split == EXAMPLES:
        why = "are being played" if env.split == EXAMPLES else f"it does not have, only {', '.join(env.domain.splits)}"
        raise ConfigError(
            f"few-shot makes its examples of the {EXAMPLES} tasks of {env.domain.name}, which {why}; in Python, "
            "marl_gem.scenarios.tau.assistants.few_shot takes other examples"
        )
    return assistants.few_shot(policy, gold_dialogues(env.domain))


@functools.cache
def gold_dialogues(domain: Domain) -> tuple[str, ...]:
    """A dialogue for each train task that its reference calls solve, as `assistants.example` writes it.

    The customer sends its instruction unchanged and the assistant only the outputs: the dialogues show which calls a
    task needs, not how to phrase messages.
    """
    oracle = ScriptPolicy("oracle", domain, domain.splits[EXAMPLES])
    jobs = [Job(0, oracle, str(task), {"task": task}) for task in range(len(domain.splits[EXAMPLES]))]
    with ThreadPoolExecutor(1) as thread:  # also where an event loop is running
        played = thread.submit(collect, lambda: TauEnv(domain, EXAMPLES), jobs).result()
    return tuple(assistants.example(episode) for episode in played if episode.returns.get(ASSISTANT) == 1.0)
