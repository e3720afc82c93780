"""What a run measures and reports: opponents, returns, exact analyses, several scenarios, tasks of one agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from marl_gem import MultiAgentEnv, SequentialSelector, registry
from marl_gem.overrides import apply_overrides
from marl_gem.trainers.config import parse
from marl_gem.trainers.measurement import measure
from marl_gem.trainers.run import TrainingRun, read_report
from marl_gem.trainers.start import start
from tests.trainers.support import KUHN, rows, work

TINY = {
    "policy": {"width": 16, "layers": 1, "heads": 2, "context": 128, "max_tokens": 4},
    "imitation": {"episodes": 20, "steps": 2, "batch": 8},
    "training": {"updates": 2, "episodes": 8, "opponent_pool_fraction": 0},
    "evaluation": {"final_episodes": 4, "probe_episodes": 2},
}


class TestSelfPlay:
    def test_a_report_has_scores_returns_and_the_exact_analysis(self, finished_kuhn: Path) -> None:
        report = read_report(finished_kuhn)
        for moment in (report.before, report.after):
            assert [matchup.seats for matchup in moment.matchups] == [
                {"player_0": "policy", "player_1": "random"},
                {"player_0": "random", "player_1": "policy"},
            ]
            tallies = [counts for matchup in moment.matchups for counts in matchup.agents.values()]
            assert all(counts.is_contest and counts.games == 20 for counts in tallies)
            assert moment.score == pytest.approx(sum(t.win + t.draw / 2 for t in tallies) / 40)
            assert moment.mean_return == pytest.approx(sum(t.return_sum for t in tallies) / 40)
            numbers = moment.analyses[KUHN]
            assert 0 <= numbers["exploitability"] <= 2 and 0 <= numbers["illegal"] <= 1

    def test_the_policy_meets_every_opponent_and_the_first_one_makes_the_score(self) -> None:
        opponents = 'evaluation.opponents=["scripted:perfect", "random"]'
        loop, _ = start(parse(apply_overrides({"scenario": "game:TicTacToe-v0", **TINY}, [opponents]), "test"))
        measured, episodes = measure(loop, 6, "test")
        others = [set(matchup.seats.values()) - {"policy"} for matchup in measured.matchups]
        assert others == [{"scripted:perfect"}] * 2 + [{"random"}] * 2 and len(episodes) == 24
        assert measured.score == sum(matchup.score for matchup in measured.matchups[:2]) / 2


class Guess(MultiAgentEnv):
    """One agent says one of two words; there is a right one, and no list of legal actions."""

    possible_agents = ("solver",)
    selector = SequentialSelector()

    def observe(self, agent: str) -> str:
        return "yes or no?"

    def _process_action(self, agent: str, action: str) -> None:
        self.rewards[agent] = float("yes" in action)
        self.terminations[agent] = True


class Quiz(Guess):
    """The same, with a list of legal actions."""

    def legal_actions(self, agent: str) -> list[str]:
        return ["yes", "no"]


@pytest.fixture
def _quizzes() -> Iterator[None]:
    with registry.preserved():
        registry.register("test:Guess-v0", Guess)
        registry.register("test:Quiz-v0", Quiz)
        yield


@pytest.mark.usefixtures("_quizzes")
class TestOneAgent:
    def test_a_task_of_one_agent_is_trained_and_measured_by_its_success(self, tmp_path: Path) -> None:
        run = TrainingRun.start(tmp_path / "run", parse({"scenario": "test:Quiz-v0", **TINY}, "test"))
        work(run)
        (matchup,) = read_report(tmp_path / "run").after.matchups
        assert matchup.seats == {"solver": "policy"} and not matchup.agents["solver"].is_contest
        assert matchup.score == matchup.agents["solver"].success / 4

    def test_without_legal_actions_a_model_is_named_that_can_answer(self, tmp_path: Path) -> None:
        loop, _ = start(parse({"scenario": "test:Quiz-v0", **TINY}, "test"))
        loop.learners["policy"].backend.save_model(tmp_path / "model")
        values = {"scenario": "test:Guess-v0", **TINY, "imitation": {"steps": 0}}
        values["policy"] = {"start_from": str(tmp_path / "model"), "max_tokens": 4}
        run = TrainingRun.start(tmp_path / "run", parse(values, "test"))
        work(run)
        assert run.report is not None and run.report.after.matchups[0].seats == {"solver": "policy"}


@pytest.mark.usefixtures("_quizzes")
class TestSeveralScenarios:
    def test_episodes_are_shared_out_by_weight_and_normalized_apart(self, tmp_path: Path) -> None:
        scenarios = [{"id": KUHN, "weight": 3}, {"id": "test:Quiz-v0"}]
        run = TrainingRun.start(tmp_path / "run", parse({"scenarios": scenarios, **TINY}, "test"))
        work(run)
        updates = [row for row in rows(tmp_path / "run") if row["stage"] == "training"]
        names = {f"return/{KUHN}/player_0", f"return/{KUHN}/player_1", "return/test:Quiz-v0/solver"}
        assert all(names <= row.keys() and row["episodes_played"] == 8 for row in updates)
        assert run.loop is not None
        _, episodes = run.loop.update()
        played = [episode.scenario for episode in episodes]
        assert (played.count(KUHN), played.count("test:Quiz-v0")) == (6, 2)
        report = read_report(tmp_path / "run")
        assert {matchup.scenario for matchup in report.after.matchups} == {KUHN, "test:Quiz-v0"}

    def test_wrappers_and_options_are_those_of_the_scenario(self) -> None:
        config = parse({"scenario": {"id": KUHN, "wrappers": ["time_limit=1"]}, **TINY}, "test")
        loop, _ = start(config)
        _, episodes = loop.update()
        assert {len(episode.turns) for episode in episodes} == {1}
