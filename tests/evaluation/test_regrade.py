"""Recorded episodes that are scored again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marl_gem import Response, Role, registry
from marl_gem.errors import ConfigError, LLMError, RecordError, RegistryError
from marl_gem.evaluation import Budget, evaluate, read_report, tournament
from marl_gem.evaluation.comparison import compare
from marl_gem.evaluation.playing import HOPELESS
from marl_gem.evaluation.regrade import Regraded, regrade
from marl_gem.runs.reader import RunReader
from marl_gem.types import Episode, Limits
from tests.evaluation.helpers import Answers, episodes_in, ids, numbers_of
from tests.toys import NumberGame, OneAnswer, RockPaperScissors, always


class Rules:
    """What the registered scenarios of these tests do; a test changes it between playing and scoring."""

    env: Any = OneAnswer


@pytest.fixture(autouse=True)
def scenario() -> Iterator[None]:
    with registry.preserved():
        registry.register("test:Changing-v0", lambda: Rules.env())
        yield
    Rules.env = OneAnswer


class Doubled(OneAnswer):
    """Pays twice as much."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.rewards["solver"] *= 2


class Asking(OneAnswer):
    """Asks otherwise."""

    def observe(self, agent: str) -> str:
        return f"What is the answer to task {self.task}?"


class Patient(OneAnswer):
    """Wants two answers."""

    def _process_actions(self, actions: dict[str, str]) -> None:
        super()._process_actions(actions)
        self.terminations["solver"] = self.steps == 2


def alternating() -> Answers:
    return Answers(lambda begun: str(begun % 2), name="alternating")


def play(out: Path, n: int = 6, **options: Any) -> None:
    evaluate("test:Changing-v0", options.pop("policy", None) or alternating(), n=n, out=out, concurrency=1, **options)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class TestAScenarioThatWasMended:
    def test_gives_new_returns_beside_the_old_run(self, tmp_path: Path) -> None:
        play(tmp_path / "old")
        before = contents(tmp_path / "old")
        Rules.env = Doubled
        regraded = regrade(tmp_path / "old", tmp_path / "new")
        assert contents(tmp_path / "old") == before
        assert {change.episode for change in regraded.changes.changed} == {"1.0", "3.0", "5.0"}
        assert [(change.before.return_, change.after.return_) for change in regraded.changes.changed] == [(1, 2)] * 3  # type: ignore[union-attr]
        assert (regraded.changes.recorded, regraded.changes.scored, regraded.changes.diverged) == (6, 6, {})
        report = read_report(tmp_path / "new")
        assert numbers_of(report, "solver").return_.mean == 1.0 and report.episodes.pending == 0
        assert report.command == f"marl-gem regrade {tmp_path / 'old'}"
        old, new = (episodes_in(tmp_path / name / "episodes.jsonl") for name in ("old", "new"))
        assert [episode.turns[0].response for episode in old] == [episode.turns[0].response for episode in new]
        assert [(e.seed, e.models, e.seconds) for e in old] == [(e.seed, e.models, e.seconds) for e in new]

    def test_can_be_compared_with_what_it_was(self, tmp_path: Path) -> None:
        play(tmp_path / "old")
        Rules.env = Doubled
        regrade(tmp_path / "old", tmp_path / "new")
        (subject,) = compare(RunReader(tmp_path / "old"), RunReader(tmp_path / "new")).subjects
        assert subject.pairs == 6 and subject.return_.difference and subject.return_.difference.mean == 0.5

    def test_changes_nothing_if_the_scenario_is_the_same(self, tmp_path: Path) -> None:
        play(tmp_path / "old")
        regraded = regrade(tmp_path / "old", tmp_path / "new")
        assert (regraded.changes.scored, regraded.changes.changed) == (6, ())

    def test_costs_what_was_paid_and_asks_nobody(self, tmp_path: Path) -> None:
        paid = Response("1", usage={"prompt_tokens": 10, "completion_tokens": 1}, cost=0.25, seconds=2.0)
        play(tmp_path / "old", policy=Answers(lambda begun: paid))
        new = regrade(tmp_path / "old", tmp_path / "new").result.report
        assert (new.cost, new.tokens) == (1.5, 66)
        assert numbers_of(new, "solver").cached == 0


class TestEpisodesThatWouldGoOtherwise:
    def test_are_left_out_with_the_reason(self, tmp_path: Path) -> None:
        play(tmp_path / "old", n=HOPELESS + 10)
        Rules.env = Asking
        regraded = regrade(tmp_path / "old", tmp_path / "new")
        changes = regraded.changes
        assert (changes.scored, changes.changed, len(changes.diverged)) == (0, (), HOPELESS + 10)
        assert "in turn 1 it observed 'task none', and now 'What is" in changes.diverged["0.0"]
        (error,) = regraded.result.report.errors
        assert (error.type, error.count) == ("ReplayDiverged", HOPELESS + 10)

    def test_are_those_that_go_on_after_their_record(self, tmp_path: Path) -> None:
        play(tmp_path / "old", n=2)
        Rules.env = Patient
        changes = regrade(tmp_path / "old", tmp_path / "new").changes
        assert "the record ends after 1 turns, but the episode goes on" in changes.diverged["0.0"]

    def test_end_earlier_and_are_scored(self, tmp_path: Path) -> None:
        Rules.env = Patient
        play(tmp_path / "old", n=2)
        Rules.env = OneAnswer
        changes = regrade(tmp_path / "old", tmp_path / "new").changes
        assert (changes.scored, changes.shorter) == (2, ("0.0", "1.0"))

    def test_are_scored_after_another_fix(self, tmp_path: Path) -> None:
        play(tmp_path / "old", n=2)
        Rules.env = Asking
        regrade(tmp_path / "old", tmp_path / "new")
        Rules.env = Doubled
        regraded = regrade(tmp_path / "old", tmp_path / "new", resume=True)
        assert (regraded.changes.scored, regraded.changes.diverged) == (2, {})


def test_an_episode_that_a_limit_cut_is_cut_again(tmp_path: Path) -> None:
    Rules.env = NumberGame
    play(tmp_path / "old", n=2, policy=always("1"), limits=Limits(turns=3))
    changes = regrade(tmp_path / "old", tmp_path / "new").changes
    assert (changes.scored, changes.changed) == (2, ())
    assert {episode.limit for episode in episodes_in(tmp_path / "new" / "episodes.jsonl")} == {"turns"}


def half(episode: Episode, agent: str) -> float:
    return 0.5 if episode.turns[0].response.text == "0" else 0.0


class TestARubric:
    def test_gives_the_returns(self, tmp_path: Path) -> None:
        play(tmp_path / "old")
        regraded = regrade(tmp_path / "old", tmp_path / "new", reward=half)
        assert numbers_of(regraded.result.report, "solver").return_.mean == 0.25
        assert regraded.changes.episodes == 6
        for episode in episodes_in(tmp_path / "new" / "episodes.jsonl"):
            assert episode.turns[0].reward == episode.returns["solver"] == half(episode, "solver")

    def test_decides_about_success(self, tmp_path: Path) -> None:
        play(tmp_path / "old", policy=always("yes"))
        regraded = regrade(tmp_path / "old", tmp_path / "new", reward=lambda episode, agent: 0.0)
        assert numbers_of(regraded.result.report, "solver").success.mean == 0.0

    def test_may_be_awaited_and_is_asked_again_where_it_failed(self, tmp_path: Path) -> None:
        play(tmp_path / "old")
        asked: list[str] = []

        async def judge(episode: Episode, agent: str) -> float:
            asked.append(episode.id)
            if len(asked) == 3:
                raise LLMError("busy")
            return 1.0

        regraded = regrade(tmp_path / "old", tmp_path / "new", reward=judge, concurrency=2)
        assert list(regraded.changes.failed.values()) == ["busy"] and regraded.changes.scored == 5
        assert regraded.result.report.errors[0].origin == "llm"
        regraded = regrade(tmp_path / "old", tmp_path / "new", reward=judge, resume=True)
        assert len(asked) == 7 and (regraded.changes.scored, regraded.changes.failed) == (6, {})

    @pytest.mark.parametrize("value", ["much", float("nan"), None])
    def test_that_gives_no_number_is_its_error(self, tmp_path: Path, value: Any) -> None:
        play(tmp_path / "old", n=1)
        changes = regrade(tmp_path / "old", tmp_path / "new", reward=lambda episode, agent: value).changes
        assert "the rubric gave 'solver' the reward" in changes.failed["0.0"]

    def test_is_named_by_its_file(self, tmp_path: Path) -> None:
        play(tmp_path / "old")
        code = tmp_path / "rubrics.py"
        code.write_text("def three(episode, agent):\n    return 3\n")
        regraded = regrade(tmp_path / "old", tmp_path / "new", reward=f"{code}:three")
        assert numbers_of(regraded.result.report, "solver").return_.mean == 3.0
        stored = json.loads((tmp_path / "new" / "config.json").read_text())
        assert stored["regraded"] == {"run": str(tmp_path / "old"), "reward": f"{code}:three"}
        with pytest.raises(RegistryError, match="has no function 'four'"):
            regrade(tmp_path / "old", tmp_path / "newer", reward=f"{code}:four")
        with pytest.raises(ConfigError, match=r"another configuration: regraded\.reward"):
            regrade(tmp_path / "old", tmp_path / "new", resume=True)


class TestRunsOfSeveralMatches:
    def test_a_grid(self, tmp_path: Path) -> None:
        evaluate("test:Changing-v0", {"solver": [always("1"), always("yes")]}, n=3, out=tmp_path / "old")
        Rules.env = Doubled
        regraded = regrade(tmp_path / "old", tmp_path / "new")
        assert (regraded.changes.scored, regraded.changes.episodes) == (6, 3)
        folders = [sorted(path.name for path in (tmp_path / run).iterdir() if path.is_dir()) for run in ("old", "new")]
        assert folders[0] == folders[1] and len(folders[0]) == 2
        assert read_report(tmp_path / "new").grid == read_report(tmp_path / "old").grid
        cell = read_report(tmp_path / "new" / folders[1][0])
        assert cell.config.regraded and numbers_of(cell, "solver").return_.mean == 2.0
        with pytest.raises(ConfigError, match=r"is a part of the run in .*old; score that again"):
            regrade(tmp_path / "old" / folders[0][0], tmp_path / "newer")

    def test_a_tournament(self, tmp_path: Path) -> None:
        Rules.env = RockPaperScissors
        hands = {hand: always(hand) for hand in ("rock", "paper")}
        tournament("test:Changing-v0", hands, n=2, out=tmp_path / "old")
        regraded = regrade(tmp_path / "old", tmp_path / "new", reward=lambda episode, agent: float(agent == "a"))
        assert (regraded.changes.scored, regraded.changes.episodes) == (4, 4)
        report = read_report(tmp_path / "new").tournament
        assert report and [player.won for player in report.players] == [2, 2]


class TestWhatCannotBeScored:
    def test_an_unfinished_run_is_scored_in_part(self, tmp_path: Path) -> None:
        play(tmp_path / "old", budget=Budget(episodes=2))
        regraded = regrade(tmp_path / "old", tmp_path / "new")
        assert (regraded.changes.scored, regraded.result.pending) == (2, 4)
        play(tmp_path / "old", resume=True)
        regraded = regrade(tmp_path / "old", tmp_path / "new", resume=True)
        assert (regraded.changes.scored, regraded.result.pending) == (6, 0)
        assert sorted(ids(tmp_path / "new")) == sorted(ids(tmp_path / "old"))

    def test_says_why(self, tmp_path: Path) -> None:
        play(tmp_path / "old", n=1)
        with pytest.raises(ConfigError, match="is the run that is to be scored again"):
            regrade(tmp_path / "old", tmp_path / "old")
        with pytest.raises(ConfigError, match="nowhere does not exist; name the folder of an evaluation"):
            regrade(tmp_path / "nowhere", tmp_path / "new")
        (tmp_path / "old" / "episodes.jsonl").write_text("")
        with pytest.raises(RecordError, match="has no finished episode to score again"):
            regrade(tmp_path / "old", tmp_path / "new")
        assert not (tmp_path / "new").exists()

    def test_a_scenario_that_is_gone(self, tmp_path: Path) -> None:
        with registry.preserved():
            registry.register("test:Gone-v0", OneAnswer)
            evaluate("test:Gone-v0", always("1"), n=1, out=tmp_path / "old")
        with pytest.raises(ConfigError, match="old cannot be scored again: There is no scenario 'test:Gone-v0'"):
            regrade(tmp_path / "old", tmp_path / "new")

    def test_a_scenario_with_other_seats(self, tmp_path: Path) -> None:
        play(tmp_path / "old", n=1)
        Rules.env = NumberGame
        with pytest.raises(ConfigError, match=r"cannot be scored again: .* has the seats a, b"):
            regrade(tmp_path / "old", tmp_path / "new")


def test_instructions_that_changed_are_counted(tmp_path: Path) -> None:
    class Polite(NumberGame):
        def role(self, agent: str) -> Role:
            return Role("Please.")

    Rules.env = NumberGame
    play(tmp_path / "old", n=2, policy=always("1"))
    Rules.env = Polite
    regraded: Regraded = regrade(tmp_path / "old", tmp_path / "new")
    assert (regraded.other_roles, regraded.changes.scored) == (2, 2)
    assert episodes_in(tmp_path / "new" / "episodes.jsonl")[0].roles["a"].instructions == "You are a."
