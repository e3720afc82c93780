"""The strategy few-shot: solved dialogues in the assistant's instructions."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.policies import Policy
from marl_gem.rollout import Job, collect
from marl_gem.scenarios.tau import assistants
from marl_gem.scenarios.tau.domain import Domain
from marl_gem.scenarios.tau.env import ASSISTANT, TauEnv
from marl_gem.scenarios.tau.scripts import ScriptPolicy

EXAMPLES = "train"
"""The split whose tasks serve as examples."""


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
