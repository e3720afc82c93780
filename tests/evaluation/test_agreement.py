"""Play, evaluation, head-to-head games, tournaments and the viewer say the same of the same episodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from marl_gem.cli import main
from marl_gem.evaluation import evaluate, tournament
from marl_gem.evaluation.head_to_head import head_to_head
from marl_gem.evaluation.tally import tally
from marl_gem.policies import Policy
from marl_gem.registry import make, make_policy
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode, from_json
from tests.evaluation.helpers import numbers_of
from tests.toys import RockPaperScissors, always

DESK = "tau:desk-v0"


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    """Run marl-gem in this process, in a wide terminal."""
    monkeypatch.setattr(sys, "argv", ["marl-gem", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code


def desk_policies(assistant: str) -> dict[str, Policy]:
    return {"user": make_policy(DESK, "oracle"), "assistant": make_policy(DESK, assistant)}


class TestThirtyDialogues:
    @pytest.mark.parametrize(("assistant", "solved"), [("oracle", 30), ("noop", 16)])
    def test_are_successes_or_not_everywhere(self, assistant: str, solved: int) -> None:
        result = evaluate(DESK, desk_policies(assistant), n=30)
        for agent in ("user", "assistant"):
            counted = tally(result.episodes, agent)
            assert (counted.success, counted.games, counted.is_contest) == (solved, 30, False)
            assert numbers_of(result.report, agent).success.mean == solved / 30

    def test_are_successes_for_a_tournament_of_assistants(self) -> None:
        players = {name: make_policy(DESK, name) for name in ("oracle", "noop")}
        standings = tournament(DESK, players, n=5).report.tournament
        assert standings is not None
        expected = {name: evaluate(DESK, seats, n=5).report.matches[0].agents for name, seats in
                    (("first", {"user": players["oracle"], "assistant": players["noop"]}),
                     ("second", {"user": players["noop"], "assistant": players["oracle"]}))}  # fmt: skip
        for player in standings.players:
            seats = ("user", "assistant") if player.name == "oracle" else ("assistant", "user")
            shares = [expected[key][seat].success.mean for key, seat in zip(expected, seats, strict=True)]
            assert player.success.mean == pytest.approx(sum(shares) / 2)

    def test_are_successes_on_the_command_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        seats = ("--seat", "user=scripted:oracle", "--seat", "assistant=scripted:oracle")
        command(monkeypatch, "play", DESK, *seats, "-n", "30", "--out", tmp_path / "played.jsonl")
        printed = capsys.readouterr().out
        assert "success" in printed and "draw" not in printed
        rows = [line for line in printed.splitlines() if "oracle" in line]
        assert len(rows) == 2 and all("100.0% 88.6-100.0" in row for row in rows)
        episodes = [from_json(line, Episode) for line in (tmp_path / "played.jsonl").read_text().splitlines()]
        assert tally(episodes, "user").success == 30
        recorded = RunReader(tmp_path / "played.jsonl").entries()
        assert [entry.summary.outcomes["user"].success for entry in recorded if entry.summary] == [True] * 30


class TestAContest:
    def test_has_the_same_wins_everywhere(self, tmp_path: Path) -> None:
        rock, paper = always("rock"), always("paper")
        result = evaluate(RockPaperScissors, {"a": rock, "b": paper}, n=6)
        evaluate(RockPaperScissors, {"a": rock, "b": paper}, n=6, out=tmp_path / "run")
        recorded = [entry.summary.outcomes for entry in RunReader(tmp_path / "run").entries() if entry.summary]
        tallies, episodes = head_to_head(RockPaperScissors, rock, paper, games=6, seed=0)
        standings: Any = tournament(RockPaperScissors, {"rock": rock, "paper": paper}, n=6).report.tournament
        by_name = {player.name: player for player in standings.players}
        for agent, wins, name in (("a", 0, "rock"), ("b", 6, "paper")):
            counted = tally(result.episodes, agent)
            assert (counted.win, counted.loss, counted.success) == (wins, 6 - wins, wins)
            assert numbers_of(result.report, agent).success.mean == wins / 6
            assert sum(outcomes[agent].result == "win" for outcomes in recorded) == wins
            assert by_name[name].won == 2 * wins and by_name[name].success.mean == wins / 6
        assert {counted.loss for counted in tallies.values()} == {6}
        assert all(tally(episodes[:6], seat).games == 6 for seat in ("a", "b"))

    def test_differs_from_a_task_by_the_scenarios_metadata(self) -> None:
        assert make("game:TicTacToe-v0").metadata.zero_sum
        both = always("rock")
        drawn = tally(evaluate(RockPaperScissors, both, n=3).episodes, "a")
        assert (drawn.draw, drawn.success) == (3, 0)
