"""The strategies of both seats by name, as in `--seat user=MODEL@URL,strategy=react`.

Without one a model is the plain customer, or the assistant that calls tools as its back end does.
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
"""The split whose tasks examples are made of."""

_HERE = "marl_gem.scenarios.tau"
_STRATEGIES: tuple[tuple[str, str, str, tuple[Need, ...], str], ...] = (
    (USER, "react", "users:react", (), "Thinks before each message; the thought is not sent."),
    (USER, "verify", "users:verify", ("judge",), "Has each message judged, and draws another if it is refused."),
    (
        USER,
        "reflect",
        "users:reflect",
        ("judge",),
        "Has each message judged, and rewrites it if it is refused.",
    ),
    (ASSISTANT, "act", "assistants:act", (), "Every answer is one action, written as JSON."),
    (ASSISTANT, "react", "assistants:react", (), "As act, after a thought that is not sent."),
    (USER, "official", "official_seats:user", ("env",), "As published scores were made; with the option official."),
    (
        ASSISTANT,
        "official",
        "official_seats:assistant",
        ("env",),
        "As published scores were made; with the option official.",
    ),
    (ASSISTANT, "few-shot", "strategies:few_shot", ("env",), "Is shown five dialogues that went well."),
)


def register_strategies(scenario: str) -> None:
    """Let a scenario, or a family, offer the strategies of `users.py` and `assistants.py`."""
    for agent, name, where, needs, what in _STRATEGIES:
        register_strategy(scenario, agent, name, f"{_HERE}.{where}", description=what, needs=needs)


def few_shot(policy: Policy, env: MultiAgentEnv) -> Policy:
    """`assistants.few_shot`, with the examples that the scenario's own tasks give.

    Args:
        policy: the assistant.
        env: an env of the scenario, for its domain and split.

    Raises:
        ConfigError: the scenario has no domain, or no tasks but those that are played.
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
    """A dialogue for each train task that goes well when its own calls are made, as `assistants.example` tells it.

    The customer says its instruction as it stands, and the assistant nothing but what must be said: no examples of
    style, but of which calls a wish comes to.
    """
    oracle = ScriptPolicy("oracle", domain, domain.splits[EXAMPLES])
    jobs = [Job(0, oracle, str(task), {"task": task}) for task in range(len(domain.splits[EXAMPLES]))]
    with ThreadPoolExecutor(1) as thread:  # also where an event loop is running
        played = thread.submit(collect, lambda: TauEnv(domain, EXAMPLES), jobs).result()
    return tuple(assistants.example(episode) for episode in played if episode.returns.get(ASSISTANT) == 1.0)
