"""Failures, budgets, and folders that cannot be written."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from marl_gem import Response
from marl_gem.errors import JournalError, LLMError, TransientLLMError
from marl_gem.evaluation import Budget, Numbers, Progress, evaluate, plan_evaluation, run
from marl_gem.evaluation.estimates import Estimate
from marl_gem.evaluation.playing import HOPELESS
from marl_gem.policies import Info
from marl_gem.types import Limits, Observation
from tests.evaluation.helpers import (
    GUESS,
    Answer,
    Answers,
    SlowAgentThatSays,
    episodes_in,
    ids,
    numbers_of,
    played,
    report_of,
)
from tests.slow_game import Slow, SlowPolicy


class TestFailures:
    def test_are_pending_not_scored_and_played_again(self, tmp_path: Path) -> None:
        ill = Answers(lambda begun: TransientLLMError("busy") if begun % 3 == 0 else "1")
        result = evaluate(Answer, ill, n=30, out=tmp_path / "run", concurrency=1)
        assert (result.pending, result.stopped) == (10, "")
        numbers = result.report.episodes
        assert (numbers.counted, numbers.pending, numbers.failed) == (20, 10, 10)
        assert msgspec.structs.replace(numbers_of(result.report, "solver").success, low=0.0) == Estimate(
            1.0, 0.0, 1.0, 20
        )
        (error,) = result.report.errors
        assert (error.origin, error.type, error.count) == ("llm", "TransientLLMError", 10)
        failed = episodes_in(tmp_path / "run" / "errors.jsonl")
        assert len(failed) == 10 and all(episode.error and episode.error.message == "busy" for episode in failed)
        assert not set(ids(tmp_path / "run")) & {episode.id for episode in failed}
        assert "10 are pending" in (tmp_path / "run" / "report.md").read_text()

        well = Answers(lambda begun: "1", name="answers")
        result = evaluate(Answer, well, n=30, out=tmp_path / "run", resume=True)
        assert result.pending == 0 and well.begun == 10 and result.report.errors == ()
        assert result.report.episodes.failed_ever == 10
        assert sorted(ids(tmp_path / "run")) == sorted(f"{index}.0" for index in range(30))

    @pytest.mark.parametrize(
        ("answer", "origin", "type_"),
        [
            (LLMError("no such model"), "llm", "LLMError"),
            (ValueError("a bug"), "agent", "ValueError"),
            ("break", "env", "ScenarioFault"),
            ("set", "env", "RecordError"),
        ],
    )
    def test_are_grouped_by_where_they_came_from(
        self, tmp_path: Path, answer: Exception | str, origin: str, type_: str
    ) -> None:
        answers = Answers(lambda begun: answer if begun in (2, 5) else "1")
        result = evaluate(Answer, answers, n=8, out=tmp_path / "run", concurrency=1)
        assert [(entry.origin, entry.type, entry.count) for entry in result.report.errors] == [(origin, type_, 2)]
        assert result.pending == 2 and len(ids(tmp_path / "run")) == 6

    def test_of_everything_stop_the_run_early(self, tmp_path: Path) -> None:
        dead = Answers(lambda begun: LLMError("401: set OPENAI_API_KEY"))
        result = evaluate(Answer, dead, n=5000, out=tmp_path / "run", concurrency=4)
        assert HOPELESS <= dead.begun < HOPELESS + 4 and result.pending == 5000
        assert result.stopped.endswith("failed one after the other, the last with: 401: set OPENAI_API_KEY")
        assert "401: set OPENAI_API_KEY" in (tmp_path / "run" / "report.md").read_text()

    def test_to_be_recorded_stop_it_too(self, tmp_path: Path) -> None:
        result = evaluate(Answer, SlowAgentThatSays("set"), n=5000, out=tmp_path / "run", concurrency=4)
        assert "is a set, not plain data" in result.stopped
        assert HOPELESS <= result.report.episodes.failed < 1000

    def test_here_and_there_do_not(self) -> None:
        answers = Answers(lambda begun: LLMError("no") if begun % 2 else "1")
        assert evaluate(Answer, answers, n=200, concurrency=1).report.episodes.counted == 100

    def test_of_a_constructor_are_those_of_the_episodes_that_needed_the_env(self, tmp_path: Path) -> None:
        made = 0

        def make() -> Answer:
            nonlocal made
            made += 1
            if made == 4:  # after the first look, a first env, and another since the first had to go
                raise OSError("no sockets left")
            return Answer()

        answers = Answers(lambda begun: "break" if begun in (5, 9) else "1")
        result = evaluate(make, answers, n=30, out=tmp_path / "run", concurrency=1)
        assert len(ids(tmp_path / "run")) == 27 and result.pending == 3
        assert [(entry.type, entry.count) for entry in result.report.errors] == [("ScenarioFault", 3)]
        messages = [
            episode.error.message for episode in episodes_in(tmp_path / "run" / "errors.jsonl") if episode.error
        ]
        assert sum("cannot be made: OSError: no sockets left (test_failures.py" in text for text in messages) == 1
        assert evaluate(Answer, Answers(lambda begun: "1"), n=30, out=tmp_path / "run", resume=True).pending == 0

    def test_of_a_constructor_that_works_once_stop_the_run(self, tmp_path: Path) -> None:
        made = 0

        def make() -> Answer:
            nonlocal made
            made += 1
            if made > 1:
                raise ZeroDivisionError("once only")
            return Answer()

        result = evaluate(make, Answers(lambda begun: "1"), n=500, out=tmp_path / "run", concurrency=4)
        assert "cannot be made: ZeroDivisionError: once only (" in result.stopped and result.pending == 500
        assert result.report.episodes.failed < 500


class TestBudgets:
    def priced(self, cost: float | None = 0.5) -> Answers:
        return Answers(lambda begun: Response("1", usage={"prompt_tokens": 90, "completion_tokens": 10}, cost=cost))

    @pytest.mark.parametrize(
        ("budget", "reason"),
        [
            (Budget(tokens=700), "the run's 700 tokens are used up"),
            (Budget(cost=3.5), r"the run's \$3.5 are used up"),
            (Budget(episodes=7), "the run's 7 episodes are played"),
        ],
    )
    def test_stop_the_run_cleanly_and_count_all_that_it_holds(
        self, tmp_path: Path, budget: Budget, reason: str
    ) -> None:
        class Patient(Answers):
            async def act(self, observation: Observation, info: Info) -> Response:
                await asyncio.sleep(0.06)  # so that each is counted before the next begins
                return await super().act(observation, info)

        answers = Patient(self.priced()._answer)
        result = evaluate(Answer, answers, n=12, out=tmp_path / "run", concurrency=1, budget=budget)
        assert re.fullmatch(reason, result.stopped) and 7 <= 12 - result.pending <= 9
        again = evaluate(Answer, answers, n=12, out=tmp_path / "run", resume=True, budget=budget)
        assert again.pending == result.pending and again.stopped == result.stopped
        assert evaluate(Answer, answers, n=12, out=tmp_path / "run", resume=True).pending == 0

    def test_of_episodes_is_exact_at_any_concurrency(self) -> None:
        result = evaluate(Answer, SlowAgentThatSays("1"), n=100, concurrency=16, budget=Budget(episodes=7))
        assert len(result.episodes) == 7 and result.pending == 93

    def test_of_time_ends_it(self) -> None:
        begun = time.monotonic()
        result = evaluate(Slow, SlowPolicy(0.02), n=1000, concurrency=4, budget=Budget(seconds=0.3))
        assert result.stopped == "the run's 0.3 seconds are over"
        assert time.monotonic() - begun < 3 and 0 < result.report.episodes.counted < 200

    @pytest.mark.parametrize("budget", [Budget(cost=5.0), None])
    def test_of_money_are_refused_when_a_price_is_unknown(self, budget: Budget | None) -> None:
        limits = None if budget else Limits(cost=1.0)
        answers = self.priced(cost=None)
        result = evaluate(Answer, answers, n=30, budget=budget, limits=limits)
        assert result.stopped.startswith("the price of some answers is unknown") and answers.begun == 1


class TestAFolderThatFails:
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        disk = tmp_path / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk], capture_output=True).returncode:
            pytest.skip("making a small disk needs root")
        yield disk
        subprocess.run(["umount", "-l", disk], check=True)

    def test_a_full_disk_is_an_error_and_costs_nothing_that_counted(self, tmp_path: Path, disk: Path) -> None:
        done: list[int] = []
        plan = plan_evaluation(Slow, SlowPolicy(0.02), Numbers(n=300))
        with pytest.raises(JournalError, match=r"No space left on device.*--resume continues the run"):
            run(plan, disk / "run", watch=lambda progress: done.append(progress.done))
        there = ids(disk / "run")
        assert 0 < done[-1] <= len(there) == len(set(there)) < 300
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        assert run(plan, disk / "run", resume=True).pending == 0
        run(plan, tmp_path / "whole")
        assert played(disk / "run") == played(tmp_path / "whole")
        assert report_of(disk / "run") == report_of(tmp_path / "whole")

    def test_a_disk_that_can_only_be_read_is_an_error(self, disk: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(JournalError, match=r"cannot write to .*: Read-only file system"):
            evaluate(Slow, GUESS, n=3, out=disk / "run")

    def test_a_folder_that_is_taken_away_stops_the_run_soon(self, tmp_path: Path) -> None:
        def take_away(progress: Progress) -> None:
            (tmp_path / "run").rename(tmp_path / "elsewhere") if progress.done < 300 else None

        begun = time.monotonic()
        plan = plan_evaluation(Slow, SlowPolicy(0.01), Numbers(n=2000))
        with pytest.raises(JournalError, match=r"cannot write to .*moved, removed or replaced"):
            run(plan, tmp_path / "run", concurrency=8, watch=take_away)
        assert time.monotonic() - begun < 5
        (tmp_path / "elsewhere").rename(tmp_path / "run")
        assert len(ids(tmp_path / "run")) == len(set(ids(tmp_path / "run"))) > 0
