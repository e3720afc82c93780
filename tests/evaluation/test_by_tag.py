"""Results by team and role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem import Metadata, MultiAgentEnv, ParallelSelector
from marl_gem.evaluation import evaluate, read_report, tournament
from marl_gem.evaluation.markdown import markdown
from marl_gem.evaluation.report import TagReport
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.runs.outcomes import outcomes
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode, Limits, from_json, to_json
from tests.evaluation.helpers import episodes_in
from tests.toys import OneAnswer, always

AGENTS: tuple[str, ...] = ("a", "b", "c", "d")


class Hunt(MultiAgentEnv):
    """Two wolves, who win or lose together: they win in every second seed. One of them leads."""

    possible_agents: tuple[str, ...] = AGENTS
    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True)

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        first = self.seed % 4
        self.wolves = {AGENTS[first], AGENTS[first - 1]}
        for agent in AGENTS:
            self.infos[agent] = {"team": "wolves" if agent in self.wolves else "village"}
        self.infos[AGENTS[first]]["role"] = "leader"

    def observe(self, agent: str) -> str:
        return "Well?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        if "wait" not in actions.values():
            won = self.wolves if self.seed % 2 else set(AGENTS) - self.wolves
            self.rewards = {agent: 1.0 if agent in won else -1.0 for agent in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)


def found(reports: tuple[TagReport, ...]) -> dict[tuple[str, str, str], tuple[float, int]]:
    return {(report.tag, report.name, report.player): (report.success.mean, report.success.n) for report in reports}


def test_teams_and_roles_are_in_the_record(tmp_path: Path) -> None:
    (episode,) = collect(Hunt, [Job(5, always("go"))])
    assert episode.tags["b"] == {"team": "wolves", "role": "leader"} and episode.tags["c"] == {"team": "village"}
    assert from_json(to_json(episode), Episode) == episode
    (cut,) = collect(Hunt, [Job(5, always("wait"), limits=Limits(turns=4))])
    assert cut.limit and cut.tags == episode.tags, "also where no agent had a last info"


def test_the_agents_of_a_team_win_together() -> None:
    for seed, winners in ((1, {"a", "b"}), (2, {"a", "d"})):
        (episode,) = collect(Hunt, [Job(seed, always("go"))])
        judged = outcomes(episode)
        assert {agent for agent in AGENTS if judged[agent].result == "win"} == winners
        assert {judged[agent].result for agent in AGENTS if agent not in winners} == {"loss"}
    (waited,) = collect(Hunt, [Job(1, always("wait"), limits=Limits(turns=4))])
    assert {outcome.result for outcome in outcomes(waited).values()} == {"draw"}


def test_a_report_has_a_row_for_each(tmp_path: Path) -> None:
    result = evaluate(Hunt, always("go"), n=20, out=tmp_path / "run")
    (match,) = result.report.matches
    odd = sum(slot.seed % 2 for slot in result.plan.slots.values())
    assert found(match.by_tag) == {
        ("team", "village", ""): (1 - odd / 20, 40),
        ("team", "wolves", ""): (odd / 20, 40),
        ("role", "leader", ""): (odd / 20, 20),
    }
    assert read_report(tmp_path / "run").matches[0].by_tag == match.by_tag
    stored = json.loads((tmp_path / "run" / "report.json").read_text())["matches"][0]["by_tag"][0]
    assert (stored["tag"], stored["name"]) == ("team", "village")
    text = (tmp_path / "run" / "report.md").read_text()
    assert "**By team**" in text and "| village | 40 |" in text and "**By role**" in text
    entry = RunReader(tmp_path / "run").entries()[0]
    assert (
        entry.summary
        and len(entry.summary.tags) == 4
        and {o.result for o in entry.summary.outcomes.values()}
        == {
            "win",
            "loss",
        }
    )


def test_players_are_kept_apart() -> None:
    left, right = (ScriptedPolicy(lambda observation, info: "go", name=name) for name in ("left", "right"))
    (match,) = evaluate(Hunt, {"a": left, "b": right, "c": right, "d": right}, n=20).report.matches
    rows = found(match.by_tag)
    assert {key[2] for key in rows} == {"left", "right"}
    assert sum(n for (tag, _, player), (_, n) in rows.items() if tag == "team" and player == "left") == 20


def test_a_tournament_has_them_too() -> None:
    class Pairs(Hunt):
        possible_agents = ("a", "b")

        def _reset(self, options: Mapping[str, Any]) -> None:
            self.wolves = {"a"}
            self.infos["a"] = {"team": "wolves"}

    report = tournament(Pairs, {"x": always("go"), "y": always("go")}, n=4).report
    assert report.tournament
    assert [(row.name, row.player, row.success.n) for row in report.tournament.by_tag] == [
        ("wolves", "x", 4),
        ("wolves", "y", 4),
    ]
    assert "**By team**" in markdown(report)


class Relay(MultiAgentEnv):
    """Three agents say a number at once, which is the agent's reward. `first` and `second` are of one team."""

    possible_agents = ("first", "second", "rival")
    selector = ParallelSelector()
    teams: Mapping[str, str] = {"first": "home", "second": "home", "rival": "away"}

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.infos = {agent: {"team": team} for agent, team in self.teams.items()}

    def observe(self, agent: str) -> str:
        return "Well?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.rewards = {agent: float(text) for agent, text in actions.items()}
        self.terminations = dict.fromkeys(self.agents, True)


def test_teammates_are_no_opponents_of_each_other_in_a_tournament() -> None:
    players = {"low": always("1"), "high": always("9"), "middle": always("5")}
    report = tournament(Relay, players, n=2).report.tournament
    assert report
    found = {player.name: (player.score.mean if player.score else None) for player in report.players}
    # Two players are teammates in 2 of the 6 seatings, and opponents in 4, each of 2 games.
    assert found == {"high": 1.0, "middle": 0.5, "low": 0.0}
    assert report.matrix["high"]["low"].n == 8 and len(report.seats) == 3
    with_teammates = {seat: estimate.mean for seat, estimate in report.seats.items() if estimate}
    assert with_teammates == {"first": 0.5, "second": 0.5, "rival": 0.5}
    won = {player.name: (player.won, player.drawn, player.lost) for player in report.players}
    assert won["low"] == (0, 0, 12) and won["high"][0] == 12 and won["middle"] == (4, 0, 8)


def test_a_tournament_of_one_team_has_no_ratings() -> None:
    class Together(Relay):
        teams: Mapping[str, str] = dict.fromkeys(Relay.possible_agents, "home")

    report = tournament(Together, {name: always(name) for name in "123"}, n=1).report
    assert report.tournament and "one team" in report.tournament.left_out and "one team" in markdown(report)
    assert all(player.rating is None and player.score is None for player in report.tournament.players)


def test_scenarios_without_them_have_no_such_rows(tmp_path: Path) -> None:
    result = evaluate(OneAnswer, always("1"), n=2, out=tmp_path / "run")
    assert result.report.matches[0].by_tag == () and "By team" not in (tmp_path / "run" / "report.md").read_text()
    assert '"tags"' not in (tmp_path / "run" / "episodes.jsonl").read_text()
    assert all(episode.tags == {} for episode in episodes_in(tmp_path / "run" / "episodes.jsonl"))


def test_dealt_roles_of_textarena() -> None:
    pytest.importorskip("textarena")
    _, infos = marl_gem.make("ta:SecretMafia-v0").reset(seed=3)
    assert {info["team"] for info in infos.values()} == {"Mafia", "Village"}
    assert {"Mafia", "Doctor"} <= {info["role"] for info in infos.values()}
