"""Two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.errors import RecordError
from marl_gem.evaluation import evaluate, tournament
from marl_gem.evaluation.comparison import compare
from marl_gem.policies import ScriptedPolicy
from marl_gem.runs.reader import RunReader
from tests.evaluation.helpers import Answers, Highest, Tasks
from tests.slow_game import Slow, SlowPolicy
from tests.toys import always
from tests.viewer.recorded import episode, opened, write_run


class Many(Tasks):
    """Fifty tasks; the answer "1" solves one."""

    tasks = 50


def run(folder: Path, solves: Callable[[int], bool], **numbers: int) -> Path:
    """An evaluation whose episodes succeed as `solves` says, by their number."""
    evaluate(Many, Answers(lambda number: "1" if solves(number) else "0"), out=folder, concurrency=1, **numbers)  # type: ignore[arg-type]
    return folder


def compared(before: Path, after: Path) -> Any:  # a `Comparison`, whose numbers are there
    return compare(RunReader(before), RunReader(after))


def test_pairs_by_task_and_seed(tmp_path: Path) -> None:
    before = run(tmp_path / "before", lambda number: number < 20)
    after = run(tmp_path / "after", lambda number: 5 <= number < 35)
    (subject,) = compared(before, after).subjects
    assert (subject.name, subject.pairs) == ("solver", 50)
    assert (subject.success.before.mean, subject.success.after.mean) == (0.4, 0.6)
    assert subject.success.difference.mean == pytest.approx(0.2)
    assert subject.success.difference.low < 0.2 < subject.success.difference.high
    assert [flip.id for flip in subject.gained] == [f"{task}.0" for task in range(20, 35)]
    assert [flip.id for flip in subject.lost] == [f"{task}.0" for task in range(5)]
    found = RunReader(after).find(subject.lost[0].after)
    assert found.summary is not None and not found.summary.outcomes["solver"].success


def test_pairing_makes_the_interval_narrow_where_the_same_tasks_are_solved(tmp_path: Path) -> None:
    before = run(tmp_path / "before", lambda number: number % 2 == 0)
    after = run(tmp_path / "after", lambda number: number % 2 == 0 or number == 1)
    elsewhere = run(tmp_path / "elsewhere", lambda number: number % 2 == 0 or number == 1, seed=1)
    paired, other = (compared(before, run).subjects[0] for run in (after, elsewhere))
    assert (paired.pairs, other.pairs) == (50, 0)
    assert paired.success.difference.mean == pytest.approx(other.success.difference.mean)
    assert paired.success.difference.high - paired.success.difference.low < 0.1
    assert other.success.difference.high - other.success.difference.low > 0.3


def test_a_run_and_itself(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", lambda number: number < 9)
    (subject,) = compared(folder, folder).subjects
    assert subject.success.difference.mean == 0 and not subject.gained and not subject.lost


def test_players_of_a_tournament_are_compared_whatever_their_seats(tmp_path: Path) -> None:
    for name, answer in (("before", "5"), ("after", "9")):
        players = {"same": always("6"), "changed": always(answer)}
        tournament(Highest, players, n=3, out=tmp_path / name)
    subjects = {s.name: s for s in compared(tmp_path / "before", tmp_path / "after").subjects}
    assert set(subjects) == {"same", "changed"}
    assert subjects["changed"].success.difference.mean == 1 == -subjects["same"].success.difference.mean
    assert subjects["changed"].pairs == 6


def test_trained_policies_are_compared_whatever_their_seats(tmp_path: Path) -> None:
    """A policy is measured in both seats against an opponent, whose games are not its own."""
    runs = []
    for name, wins in (("before", 1), ("after", 3)):
        measured = [
            episode(
                id=f"measured-6-{seat}-{number}",
                seed=number,
                models={f"player_{seat}": "policy@6", f"player_{1 - seat}": "random"},
                returns={f"player_{seat}": 1.0 if number < wins else -1.0, f"player_{1 - seat}": 0.0},
                final_infos={},
                zero_sum=True,
            )
            for seat in (0, 1)
            for number in range(4)
        ]
        runs.append(opened(write_run(tmp_path / name, measured)))
    before, after = runs
    (policy,) = compare(before, after).subjects
    assert (policy.name, policy.pairs) == ("policy", 8)
    assert policy.success.before and policy.success.before.mean == 0.25
    assert policy.success.after and policy.success.after.mean == 0.75
    assert len(policy.gained) == 4 and not policy.lost


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", lambda number: True, n=3)
    evaluate(Slow, SlowPolicy(), n=2, out=tmp_path / "other")
    with pytest.raises(RecordError, match="no scenario in common"):
        compared(folder, tmp_path / "other")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(RecordError, match="no finished episode"):
        compared(folder, tmp_path / "empty.jsonl")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(Path("a"), lambda number: number < 20)
    run(Path("b"), lambda number: number < 30)
    shown = CliRunner().invoke(app, ["compare", "a", "b"]).output
    assert "50 pairs" in shown and "+20.0 (" in shown
    assert "solver succeeds only after: 20.0, 21.0" in shown
    assert max(map(len, shown.splitlines()[:6])) <= 80
    written = json.loads(CliRunner().invoke(app, ["compare", "a", "b", "--json"]).output)
    assert written[""]["subjects"][0]["pairs"] == 50


def test_grids_are_compared_combination_by_combination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seats = {"solver": [always("1"), ScriptedPolicy(lambda *_: "0", "wrong")]}
    for name in ("a", "b"):
        evaluate(Many, seats, n=4, out=name)
    written = json.loads(CliRunner().invoke(app, ["compare", "a", "b", "--json"]).output)
    assert len(written) == 2 and all(cell["subjects"][0]["pairs"] == 4 for cell in written.values())
