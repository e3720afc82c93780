"""Results by team and by role, where a scenario's infos name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from marl_gem.evaluation.estimates import estimate
from marl_gem.evaluation.report import TagReport
from marl_gem.evaluation.summary import Judged
from marl_gem.runs.outcomes import Outcome
from marl_gem.seeding import derive_seed

TAGS = ("team", "role")


def by_tag(played: Iterable[tuple[int, Judged, Mapping[str, str]]], seed: int) -> tuple[TagReport, ...]:
    """What the agents of each team and in each role came to, by the player in their seats if there are several.

    Args:
        played: episodes, each with its task and the label of the player in each seat.
        seed: of the run, which fixes the resamples.
    """
    played = list(played)
    several = len({label for _, _, labels in played for label in labels.values()}) > 1
    found: dict[tuple[str, str, str], dict[int, list[Outcome]]] = {}
    for task, summary, labels in played:
        for agent, outcome in summary.outcomes.items():
            tags = summary.tags.get(agent, {})
            for tag in TAGS:
                if tag in tags:
                    key = tag, tags[tag], labels.get(agent, "") if several else ""
                    found.setdefault(key, {}).setdefault(task, []).append(outcome)
    order = sorted(found, key=lambda key: (TAGS.index(key[0]), *key[1:]))
    return tuple(_report(*key, found[key], seed) for key in order)


def _report(tag: str, name: str, player: str, tasks: Mapping[int, list[Outcome]], seed: int) -> TagReport:
    successes = [[outcome.success for outcome in judged] for judged in tasks.values()]
    returns = [[outcome.return_ for outcome in judged] for judged in tasks.values()]
    success = estimate(successes, derive_seed(seed, "bootstrap", "success"), proportion=True)
    mean_return = estimate(returns, derive_seed(seed, "bootstrap", "return"))
    assert success and mean_return  # there is an outcome
    return TagReport(tag=tag, name=name, player=player, success=success, return_=mean_return)
