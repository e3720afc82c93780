"""Where and why agents do not succeed: by task, by reason, and beside what playing without wit comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marl_gem.evaluation.outcomes import Outcome


def by_task(tasks: Mapping[int, Sequence[Outcome]], agents: Iterable[str]) -> list[dict[str, Any]]:
    """For each task, by its number, how often each agent tried it, how often it solved it, and why not.

    Args:
        tasks: how every try at each task went.
        agents: whom to tell of; one that was in no try at a task is left out there.
    """
    agents = tuple(agents)
    return [
        {
            "task": task,
            "agents": {
                agent: {
                    "tries": len(own),
                    "solved": sum(one.success[agent] for one in own),
                    "reasons": reasons(own, agent),
                }
                for agent in agents
                if (own := [one for one in tries if agent in one.success])
            },
        }
        for task, tries in sorted(tasks.items())
    ]


def reasons(outcomes: Iterable[Outcome], agent: str) -> dict[str, int]:
    """How often an agent did not succeed for each reason that is told, most frequent first; see `outcomes.reason`."""
    return ranked(Counter(one.reasons[agent] for one in outcomes if agent in one.reasons))


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts, the highest first, equal ones by name: in the same order however they were counted."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def trivial_baselines(declared: Mapping[str, Sequence[float]], tries: Sequence[int]) -> dict[str, float]:
    """What a scenario's trivial baselines come to on what was played, so that they can stand beside its success.

    Args:
        declared: `MultiAgentEnv.trivial_baselines`.
        tries: the task of every episode that counts. A task that was played twice weighs twice, as it does there.

    Returns:
        a share from 0 to 1 for each floor; nothing if nothing was played.
    """
    if not tries:
        return {}
    return {name: sum(solved[task] for task in tries) / len(tries) for name, solved in declared.items()}
