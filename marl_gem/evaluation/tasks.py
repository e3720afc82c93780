"""Where and why agents do not succeed: by task, by reason, and beside what playing without wit comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marl_gem.evaluation.summary import EpisodeSummary


def by_task(tasks: Mapping[int, Sequence[EpisodeSummary]], agents: Iterable[str]) -> list[dict[str, Any]]:
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
                    "tries": len(judged),
                    "solved": sum(outcome.success for outcome in judged),
                    "reasons": reasons(tries, agent),
                }
                for agent in agents
                if (judged := [summary.outcomes[agent] for summary in tries if agent in summary.outcomes])
            },
        }
        for task, tries in sorted(tasks.items())
    ]


def reasons(episodes: Iterable[EpisodeSummary], agent: str) -> dict[str, int]:
    """How often an agent did not succeed for each known reason, most frequent first; see `runs.outcomes`."""
    judged = (summary.outcomes[agent] for summary in episodes if agent in summary.outcomes)
    return ranked(Counter(outcome.reason for outcome in judged if outcome.reason))


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
