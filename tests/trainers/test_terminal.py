"""What marl-gem train shows in a terminal of 80 columns: while it works, and at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from marl_gem.cli import app, terminal
from marl_gem.evaluation.tally import Tally
from marl_gem.trainers.measurement import Matchup, Measurement
from marl_gem.trainers.run import Progress, TrainingReport, TrainingRun
from marl_gem.trainers.sections import TrainConfig

WIDTH = 80
MODEL = "Qwen/Qwen3-1.7B-Instruct@http://127.0.0.1:8000/v1,temperature=0.7,max_tokens=2048"
LIVE = {"score": 0.512, "entropy": 1.234, "failed": 1234}


class FinishedRun:
    """Stands in for a run: reports some progress, and what was measured."""

    memory = None

    def __init__(self, folder: Path, config: TrainConfig, report: TrainingReport) -> None:
        self.folder, self.config, self.report = folder, config, report

    def work(self) -> Iterator[Progress]:
        yield Progress("training", 100_000, 100_000, LIVE)


def share(number: int) -> Tally:
    return Tally(games=1000, success=number)


def tasks(agents: Sequence[str], first: int) -> list[Matchup]:
    """Two seatings of these agents, each with other numbers from `first` on."""
    seats = [{agent: "policy-with-a-long-name" if index % 2 else MODEL for index, agent in enumerate(agents)}]
    seats.append(dict.fromkeys(agents, "policy-with-a-long-name"))
    learning = [[agent for agent, who in seated.items() if who != MODEL] for seated in seats]
    numbers = iter(range(first, 1000))
    return [
        Matchup("test:Bazaar-v0", seated, {agent: share(next(numbers)) for agent in learners})
        for seated, learners in zip(seats, learning, strict=True)
    ]


def contest(agents: Sequence[str], first: int) -> list[Matchup]:
    seats = dict.fromkeys(agents, MODEL) | {agents[0]: "policy-with-a-long-name"}
    games = Tally(games=1000, win=first, draw=100, loss=900 - first, return_sum=first, return_square_sum=1000)
    return [Matchup("test:Bazaar-v0", seats, {agents[0]: games})]


def shown(monkeypatch: pytest.MonkeyPatch, folder: Path, before: list[Matchup], after: list[Matchup]) -> str:
    """What `marl-gem train` prints of a run that measured this."""
    ends = after[:1] * 2
    analyses = {"test:Bazaar-v0": {"exploitability": 0.125, "value/a_player_with_a_long_name": 0.5}}
    first, last = (Measurement(0.25, 0.1, matchups, analyses) for matchups in (before, after))
    report = TrainingReport(first, last, ends, 12.0)

    def start(cls: type[TrainingRun], folder: Path, config: TrainConfig) -> Any:
        return FinishedRun(folder, config, report)

    monkeypatch.setattr(TrainingRun, "start", classmethod(start))
    for console in (terminal.out, terminal.err):
        monkeypatch.setattr(console, "width", WIDTH)
    result = CliRunner().invoke(app, ["train", "game:KuhnPoker-v0", "--runs", str(folder)])
    assert result.exit_code == 0, result.output
    return result.output


def columns_of(text: str) -> int:
    """The width of the widest line, apart from those that people copy: paths and commands."""
    copied = ("pytest-", "marl-gem play")
    return max(cell_len(line.rstrip()) for line in text.splitlines() if not any(word in line for word in copied))


@pytest.mark.parametrize("agents", [2, 7, 50])
@pytest.mark.parametrize("kind", [tasks, contest])
def test_every_value_is_there_within_the_width(
    kind: Any, agents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"merchant_of_venice_{index}" for index in range(agents)]
    before, after = kind(names, 101), kind(names, 601)
    text = shown(monkeypatch, tmp_path, before, after)
    assert columns_of(text) <= WIDTH, text
    assert not re.search(r"\d…", text), "no number is cut"
    words = text.split()
    for matchup in (*before, *after):
        counts = [(c.win if kind is contest else c.success) / 10 for c in matchup.agents.values()]
        values = counts if agents < 9 else [sum(counts) / len(counts)]
        assert {f"{value:.1f}%" for value in values} <= set(words)
    assert MODEL in "".join(words), "who holds the seats"


def test_the_live_line_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["customer", "assistant"]
    text = shown(monkeypatch, tmp_path, tasks(names, 101), tasks(names, 601))
    live = text[: text.index("seating")]
    assert columns_of(live) <= WIDTH and "…" not in live
    for word in ("self-play", "100000/100000", "0.512", "1.234", "1234", "failed"):
        assert word in live.split()
