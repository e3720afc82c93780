"""What the tests of training share: small configurations, scenarios, and looks into a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from marl_gem import MultiAgentEnv, SequentialSelector
from marl_gem.overrides import apply_overrides
from marl_gem.runs.journal import read_rows
from marl_gem.trainers.config import parse
from marl_gem.trainers.imitation import warm_up
from marl_gem.trainers.loop import TrainingLoop
from marl_gem.trainers.run import TrainingRun
from marl_gem.trainers.sections import TrainConfig
from marl_gem.trainers.start import start

DESK, KUHN = "tau:desk-v0", "game:KuhnPoker-v0"

SMALL_KUHN: dict[str, Any] = {
    "scenario": KUHN,
    "policy": {"width": 16, "layers": 1, "heads": 2, "context": 128},
    "imitation": {"episodes": 100, "steps": 60, "batch": 32, "learning_rate": 1e-2},
    "training": {
        "updates": 6,
        "episodes": 16,
        "snapshot_every": 2,
        "pool_size": 2,
        "opponent_pool_fraction": 0.5,
        "save_every": 2,
        "keep_episodes": 2,
    },
    "evaluation": {"final_episodes": 20, "probe_episodes": 5, "probe_every": 3},
}
SMALL_DESK: dict[str, Any] = {
    "scenario": DESK,
    "options": {"split": "train"},
    "test_options": {"split": "test"},
    "seats": {"user": "scripted:expert", "assistant": "assistant"},
    "phases": [{"start": 2, "seats": {"user": "user"}}],
    "policy": {"width": 16, "layers": 1, "heads": 2, "tokens": "words", "view": "chat", "max_tokens": 12},
    "imitation": {
        "seats": {"user": "scripted:novice", "assistant": "scripted:novice"},
        "episodes": 60,
        "steps": 20,
        "batch": 16,
    },
    "training": {
        "updates": 5,
        "episodes": 12,
        "opponent_pool_fraction": 0.5,
        "snapshot_every": 1,
        "pool_size": 2,
        "save_every": 1,
    },
    "evaluation": {"final_episodes": 8, "probe_episodes": 4, "probe_every": 2},
}


def kuhn(*assignments: str) -> TrainConfig:
    """Self-play at Kuhn poker."""
    return parse(apply_overrides(SMALL_KUHN, assignments), "test")


def desk(*assignments: str) -> TrainConfig:
    """The help desk: first the assistant learns, from update 2 on the user as well."""
    return parse(apply_overrides(SMALL_DESK, assignments), "test")


class Babble(MultiAgentEnv):
    """Three agents speak in turn, twice each. Longer texts pay more, and each agent on a scale of its own."""

    possible_agents: tuple[str, ...] = ("a", "b", "c")
    selector = SequentialSelector()
    turns = 6

    def observe(self, agent: str) -> str:
        return f"{agent}, say something."

    def legal_actions(self, agent: str) -> list[str]:
        return ["yes", "no"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        scale = {"a": 1, "b": 10}
        self.rewards = {agent: scale.get(agent, -3) * (len(text) % 5) for agent, text in actions.items()}
        if self.steps >= self.turns:
            self.terminations = dict.fromkeys(self.agents, True)


class Late(Babble):
    """The third agent joins in the middle."""

    possible_agents = ("a", "b")

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 3:
            self.add_agent("c")


class Silent(Babble):
    """It ends before the third agent has had a turn."""

    turns = 2


class Fragile(Babble):
    """Some episodes fail, always the same ones."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        if self.steps == 4 and self.seed % 4 == 1:
            raise RuntimeError("broken")


def babble(game: str, seats: dict[str, str], *assignments: str) -> TrainConfig:
    """A run on one of the games above; see the fixture `babble_games`."""
    values = {
        "scenario": f"test:{game}-v0",
        "seats": seats,
        "policy": {"width": 16, "layers": 1, "heads": 2, "context": 64, "max_tokens": 4},
        "imitation": {"episodes": 4, "steps": 1, "batch": 4},
        "training": {"updates": 3, "episodes": 9, "opponent_pool_fraction": 0, "gamma": 0.5, "snapshot_every": 1},
        "evaluation": {"final_episodes": 2, "probe_episodes": 2},
    }
    return parse(apply_overrides(values, assignments), "test")


def work(run: TrainingRun, *, until: int | None = None) -> None:
    """Let a run work to its end, or until an update."""
    for progress in run.work():
        if until is not None and progress.stage == "training" and progress.done == until:
            return


def warmed_up(config: TrainConfig) -> tuple[TrainingLoop, list[dict[str, Any]]]:
    """A loop after its warm start, and the metrics of the warm start's steps."""
    loop, demonstrations = start(config)
    return loop, list(warm_up(config, loop.phases, loop.learners, demonstrations))


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics."""
    return read_rows(folder / "metrics.jsonl")


def rows_without_times(folder: Path) -> list[dict[str, Any]]:
    timed = ("seconds", "tokens_per_second", "mfu")
    return [{name: value for name, value in row.items() if not name.startswith(timed)} for row in rows(folder)]


def weights(loop: TrainingLoop) -> dict[str, torch.Tensor]:
    """The weights of all policies, under `POLICY/NAME`."""
    return {
        f"{name}/{key}": value
        for name, learner in loop.learners.items()
        for key, value in learner.backend.weights().items()
    }


def changed(loop: TrainingLoop, before: dict[str, torch.Tensor]) -> set[str]:
    """The policies with other weights than before."""
    return {name.partition("/")[0] for name, value in weights(loop).items() if not torch.equal(value, before[name])}


def marl_gem(*arguments: str | Path | int, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "marl_gem.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=wide_terminal(), **options)


def wide_terminal() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


def toml(values: dict[str, Any]) -> str:
    """Nested values as TOML."""

    def lines() -> Iterator[str]:
        for name, value in values.items():
            if not isinstance(value, dict):
                yield f"{name} = {json.dumps(value)}"
        for section, entries in values.items():
            if isinstance(entries, dict):
                yield f"[{section}]"
                yield from (f"{name} = {json.dumps(value)}" for name, value in entries.items())

    return "\n".join(lines())
