"""Where and why agents do not succeed: by task, by reason, and beside a scenario's trivial baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from marl_gem.evaluation.estimates import Estimate, estimate
from marl_gem.evaluation.report import TaskReport, TriesReport
from marl_gem.evaluation.summary import Judged
from marl_gem.seeding import derive_seed


def by_task(
    tasks: Mapping[int, Sequence[Judged]], agents: Iterable[str], grades: Mapping[int, str] = {}
) -> tuple[TaskReport, ...]:
    """For each task, by its number, how often each agent tried it, how often it solved it, and why not.

    Args:
        tasks: the episodes of each task.
        agents: who is reported on; one that was in no try at a task is left out there.
        grades: the grade of each task, by its number; empty where they have none.
    """
    agents = tuple(agents)
    return tuple(
        TaskReport(
            task,
            {
                agent: TriesReport(
                    tries=len(judged), solved=sum(outcome.success for outcome in judged), reasons=reasons(tries, agent)
                )
                for agent in agents
                if (judged := [summary.outcomes[agent] for summary in tries if agent in summary.outcomes])
            },
            grades.get(task, ""),
        )
        for task, tries in sorted(tasks.items())
    )


def by_grade(
    tasks: Mapping[int, TriesReport], grades: Mapping[int, str], seed: int
) -> dict[str, tuple[int, Estimate | None]]:
    """How many tasks of each grade one agent tried, and its share of successes in them, by grade.

    Args:
        tasks: how the agent did at each task, by the task's number.
        grades: the grade of each task; one without a grade is left out.
        seed: fixes the resamples of the intervals.
    """
    tried: dict[str, list[TriesReport]] = {}
    for task, found in tasks.items():
        if task in grades:
            tried.setdefault(grades[task], []).append(found)
    seed = derive_seed(seed, "bootstrap", "grade")
    return {
        grade: (
            len(listed),
            estimate([[number < found.solved for number in range(found.tries)] for found in listed], seed, True),
        )
        for grade, listed in sorted(tried.items())
    }


def reasons(episodes: Iterable[Judged], agent: str) -> dict[str, int]:
    """How often an agent did not succeed for each known reason, most frequent first; see `runs.outcomes`."""
    judged = (summary.outcomes[agent] for summary in episodes if agent in summary.outcomes)
    return ranked(Counter(outcome.reason for outcome in judged if outcome.reason))


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts, the highest first, equal ones by name: in the same order however they were counted."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def baseline_shares(declared: Mapping[str, Sequence[float]], tries: Sequence[int]) -> dict[str, float]:
    """The success of a scenario's trivial baselines on the tasks that were played.

    Args:
        declared: `MultiAgentEnv.trivial_baselines`.
        tries: the task of every episode that counts. A task that was played twice weighs twice.

    Returns:
        a share from 0 to 1 for each baseline; empty if nothing was played.
    """
    if not tries:
        return {}
    return {name: sum(solved[task] for task in tries) / len(tries) for name, solved in declared.items()}
