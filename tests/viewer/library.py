"""Runs of every kind, as the commands write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from marl_gem.evaluation import evaluate, tournament
from marl_gem.policies import Policy, ScriptedPolicy
from tests.toys import OneAnswer, RockPaperScissors, always

Value = TypeVar("Value")


class GradedTasks(OneAnswer):
    """Three tasks with grades; whoever says "no" is told that it was wrong."""

    tasks = 3
    grades = ("easy", "hard", "hard")

    @property
    def trivial_baselines(self) -> Mapping[str, Sequence[float]]:
        return {"lazy": (1.0, 0.0, 0.0)}

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if actions["solver"] == "no":
            self.infos["solver"]["failure"] = "wrong sum"


def answering(name: str, *answers: str) -> Policy:
    """A policy that answers the tasks with these texts, in their order."""
    return ScriptedPolicy(lambda observation, info: answers[int(str(observation).split()[1])], name)


def in_a_thread(work: Callable[[], Value]) -> Value:
    """The result of work that starts an event loop, which Playwright's thread cannot."""
    with ThreadPoolExecutor() as thread:
        return thread.submit(work).result()


def evaluated(folder: Path, policy: Policy | Sequence[Policy], repeats: int = 1) -> Path:
    """An evaluation of all tasks; with several policies a grid."""
    seats = {"solver": policy} if isinstance(policy, Sequence) else policy
    in_a_thread(lambda: evaluate(GradedTasks, seats, repeats=repeats, out=folder))
    return folder


def competed(folder: Path) -> Path:
    """A tournament of three hands, each of which beats one other."""
    players = {hand: always(hand) for hand in RockPaperScissors.hands}
    in_a_thread(lambda: tournament(RockPaperScissors, players, n=2, out=folder))
    return folder
