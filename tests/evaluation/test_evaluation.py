"""Evaluations, grids and tournaments: the numbers, the run's folder, and everything that may happen to a run."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marl_gem import MultiAgentEnv, ParallelSelector, Response, Role, SequentialSelector
from marl_gem.errors import AgentError, ConfigError, JournalError, LLMError, MissingPackage, TransientLLMError
from marl_gem.evaluation import (
    Budget,
    Ground,
    Numbers,
    Player,
    Progress,
    evaluate,
    plan_evaluation,
    play,
    run,
    tournament,
)
from marl_gem.evaluation.estimates import Estimate, estimate, pass_at_k, pass_hat_k, passes, quantile
from marl_gem.evaluation.journal import locked
from marl_gem.evaluation.markdown import estimate_text, markdown, money_text
from marl_gem.evaluation.run import HOPELESS
from marl_gem.policies import Info, RandomPolicy, ScriptedPolicy
from marl_gem.seeding import derive_seed
from marl_gem.types import Episode, Limits, Metadata, Observation, from_json
from tests.slow_game import Slow, SlowPolicy

ROOT = Path(__file__).parents[2]
GUESS = SlowPolicy()

# The scenarios and the players


class Answer(MultiAgentEnv):
    """One agent answers once; a text that is a number is its reward. A number of tasks can be set."""

    possible_agents = ("solver",)
    selector = SequentialSelector()
    tasks: int | None = None

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.task = options.get("task", "none")

    def observe(self, agent: str) -> str:
        return f"task {self.task}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        if text == "break":
            raise RuntimeError("broken")
        self.rewards[agent] = float(text) if text.lstrip("-").isdigit() else 0.0
        self.infos[agent] = {"illegal": text} if text == "?" else {"success": text == "yes"} if text.isalpha() else {}
        self.infos[agent] |= {"odd": {1, 2}} if text == "set" else {}
        self.terminations[agent] = text != "again"


class Tasks(Answer):
    tasks = 5


class Highest(MultiAgentEnv):
    """All name a number at once, and the highest wins what the others lose."""

    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True)

    def __init__(self, players: int = 2) -> None:
        self.possible_agents = tuple(f"seat_{number}" for number in range(players))

    def observe(self, agent: str) -> str:
        return "A number?"

    def _process_actions(self, actions: dict[str, str]) -> None:
        mean = sum(map(float, actions.values())) / len(actions)
        self.rewards = {agent: float(text) - mean for agent, text in actions.items()}
        self.terminations = dict.fromkeys(actions, True)


def says(text: str, name: str = "") -> ScriptedPolicy:
    return ScriptedPolicy(lambda observation, info: text, name or text)


class Answers:
    """Answers by the number of the episode, as `answer` says; what it returns may be an exception."""

    def __init__(self, answer: Callable[[int], Response | str | Exception], name: str = "answers") -> None:
        self.name = name
        self.begun = 0
        self._answer = answer

    def agent(self, agent_id: str, role: Role, seed: int) -> Answers:
        return self

    async def act(self, observation: Observation, info: Info) -> Response:
        answer = self._answer(self.begun)
        self.begun += 1
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Response) else Response(answer)


# What a run leaves


def episodes_in(path: Path) -> list[Episode]:
    return [from_json(line, Episode) for line in path.read_text().splitlines()]


def ids(folder: Path) -> list[str]:
    return [episode.id for episode in episodes_in(folder / "episodes.jsonl")]


def timeless(value: Any) -> Any:
    """A report without what depends on the clock."""
    if isinstance(value, dict):
        return {name: timeless(part) for name, part in value.items() if name != "seconds"}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def report_of(folder: Path) -> Any:
    return timeless(json.loads((folder / "report.json").read_text()))


def played(folder: Path) -> dict[str, Any]:
    """Every episode without its times, by id."""
    return {
        one.id: (one.seed, one.returns, [turn.response.text for turn in one.turns])
        for one in episodes_in(folder / "episodes.jsonl")
    }


def numbers_of(report: Mapping[str, Any], agent: str, match: int = 0) -> Any:
    return report["matches"][match]["agents"][agent]


class TestARun:
    def test_leaves_what_it_promises(self, tmp_path: Path) -> None:
        result = evaluate(Slow, {"a": GUESS, "b": says("heads")}, n=10, repeats=2, seed=3, out=tmp_path / "run")
        folder = tmp_path / "run"
        assert {file.name for file in folder.iterdir()} == {
            ".lock", "config.json", "episodes.jsonl", "errors.jsonl",
            "report.json", "report.md", "bars.png", "pass.png",
        }  # fmt: skip
        config = json.loads((folder / "config.json").read_text())
        assert config["seats"] == {"a": "slow", "b": "heads"}
        assert (config["scenario"], config["n"], config["repeats"], config["seed"]) == ("Slow", 10, 2, 3)
        assert sorted(ids(folder)) == sorted(f"{index}.{repeat}" for index in range(10) for repeat in range(2))
        assert json.loads((folder / "report.json").read_text()) == result.report
        assert result.owed == 0 and result.stopped == "" and result.episodes == ()
        for name in ("bars.png", "pass.png"):
            assert (folder / name).read_bytes().startswith(b"\x89PNG")

    def test_without_a_folder_keeps_its_episodes(self) -> None:
        result = evaluate(Slow, GUESS, n=5)
        assert sorted(one.id for one in result.episodes) == [f"{index}.0" for index in range(5)]
        assert result.report["episodes"]["counted"] == 5 and result.folder is None

    def test_plays_the_tasks_that_follow_from_the_seed(self) -> None:
        result = evaluate(Slow, GUESS, n=4, repeats=2, seed=9)
        assert {(one.id, one.seed, one.repeat) for one in result.episodes} == {
            (f"{index}.{repeat}", derive_seed(9, "eval", index), repeat) for index in range(4) for repeat in range(2)
        }

    def test_twice_with_the_same_seed_is_the_same_and_with_another_is_not(self, tmp_path: Path) -> None:
        for name, seed in (("first", 1), ("again", 1), ("other", 2)):
            evaluate(
                Slow, GUESS, n=20, repeats=2, seed=seed, concurrency=7 if name == "again" else 3, out=tmp_path / name
            )
        assert played(tmp_path / "first") == played(tmp_path / "again") != played(tmp_path / "other")
        assert report_of(tmp_path / "first") == report_of(tmp_path / "again") != report_of(tmp_path / "other")

    def test_repeats_differ_in_the_agents_choices_alone(self) -> None:
        result = evaluate(Slow, GUESS, n=20, repeats=2)
        by_id = {one.id: one for one in result.episodes}
        texts = {id: [turn.response.text for turn in one.turns] for id, one in by_id.items()}
        assert all(by_id[f"{index}.0"].seed == by_id[f"{index}.1"].seed for index in range(20))
        assert sum(texts[f"{index}.0"] != texts[f"{index}.1"] for index in range(20)) > 10

    def test_is_held_to_a_concurrency(self) -> None:
        live = most = 0

        class Counting(SlowAgentOnce):
            async def act(self, observation: Observation, info: Info) -> Response:
                nonlocal live, most
                live, most = live + 1, max(most, live + 1)
                await asyncio.sleep(0.002)
                live -= 1
                return Response("1")

        evaluate(Answer, Counting(), n=30, concurrency=4)
        assert most == 4

    def test_within_a_running_event_loop(self) -> None:
        async def main() -> int:
            plan = plan_evaluation(Ground.of(Slow), GUESS, Numbers(n=3))
            return (await play(plan)).report["episodes"]["counted"]

        assert asyncio.run(main()) == 3

    def test_tells_how_far_it_is_and_only_what_is_on_disk(self, tmp_path: Path) -> None:
        seen: list[Progress] = []

        def watch(progress: Progress) -> None:
            seen.append(progress)
            assert len(ids(tmp_path / "run")) >= progress.done

        plan = plan_evaluation(Ground.of(Slow), SlowPolicy(0.005), Numbers(n=60))
        run(plan, tmp_path / "run", concurrency=4, watch=watch)
        assert len(seen) > 2 and seen[-1].done == seen[-1].total == 60
        assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
        assert seen[0].left is not None and seen[0].left > 0
        assert seen[-1].success == {
            agent: pytest.approx(numbers_of(report_of(tmp_path / "run"), agent)["success"]["mean"]) for agent in "ab"
        }

    def test_by_id_with_options_gives_its_command(self, tmp_path: Path) -> None:
        result = evaluate("game:KuhnPoker-v0", {seat: Player("random", RandomPolicy()) for seat in
                          ("player_0", "player_1")}, n=7, limits=Limits(turns=3), options={"max_steps": 9})  # fmt: skip
        assert result.report["command"] == (
            "marl-gem eval game:KuhnPoker-v0 --seat player_0=random --seat player_1=random -n 7 --seed 0 "
            "--max-turns 3 -o max_steps=9"
        )
        assert evaluate(Slow, GUESS, n=1).report["command"] is None


class SlowAgentOnce:
    """A policy that is its own agent."""

    name = "once"

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        return self


class TestTasks:
    def test_are_counted_by_the_scenario_and_given_by_number(self) -> None:
        result = evaluate(Tasks, says("1"), repeats=2)
        assert result.plan.n == 5
        assert {(one.options["task"], one.turns[0].observation) for one in result.episodes} == {
            (index, f"task {index}") for index in range(5)
        }
        assert len(evaluate(Tasks, says("1"), n=2).episodes) == 2

    def test_more_than_there_are_is_told(self) -> None:
        with pytest.raises(ConfigError, match="has 5 tasks, not 6; to play each again use repeats"):
            evaluate(Tasks, says("1"), n=6)

    def test_a_scenario_without_them_gets_no_option(self) -> None:
        assert evaluate(Answer, says("1"), n=1).episodes[0].options == {}


class TestSuccess:
    @pytest.mark.parametrize(("text", "success"), [("yes", 1.0), ("no", 0.0), ("3", 1.0), ("0", 0.0), ("-2", 0.0)])
    def test_is_what_the_scenario_says_else_a_return_above_0(self, text: str, success: float) -> None:
        report = evaluate(Answer, says(text), n=3).report
        assert numbers_of(report, "solver")["success"]["mean"] == success
        assert report["measure"] == "success rate"

    def test_is_winning_alone_where_the_scenario_is_zero_sum(self) -> None:
        def rates(*texts: str) -> list[float]:
            env, seats = lambda: Highest(len(texts)), {f"seat_{i}": says(text) for i, text in enumerate(texts)}
            report = evaluate(env, seats, n=2).report
            assert report["measure"] == "win rate"
            return [told["success"]["mean"] for told in report["matches"][0]["agents"].values()]

        assert rates("5", "3") == [1, 0]
        assert rates("5", "4", "0") == [1, 0, 0]  # the second's return is above 0, too
        assert rates("5", "5") == [0, 0]


class TestTheNumbers:
    def test_are_those_of_the_episodes(self) -> None:
        result = evaluate(Slow, GUESS, n=50, repeats=2, seed=5)
        told = numbers_of(result.report, "b")
        returns = [one.returns["b"] for one in result.episodes]
        assert told["return"]["mean"] == pytest.approx(sum(returns) / 100) and told["return"]["n"] == 100
        assert told["success"]["mean"] == sum(value > 0 for value in returns) / 100
        assert told["turns"] == 2 and result.report["matches"][0]["turns"] == 4
        assert told["return"]["low"] < told["return"]["mean"] < told["return"]["high"]

    def test_pass_k_counts_tasks_with_all_or_any_of_k_successes(self) -> None:
        pattern = ["1111", "1110", "1000", "0000"]  # 4 tasks, 4 repeats; played repeat by repeat
        answers = Answers(lambda begun: pattern[begun % 4][begun // 4])
        report = evaluate(Answer, answers, n=4, repeats=4, concurrency=1).report
        told = {one["k"]: one for one in numbers_of(report, "solver")["pass"]}
        assert [told[k]["hat"]["mean"] for k in (1, 2, 3, 4)] == [0.5, 0.375, 0.3125, 0.25]
        assert [told[k]["at"]["mean"] for k in (1, 2, 3, 4)] == [0.5, 0.625, 0.6875, 0.75]

    def test_of_models_are_added_up(self) -> None:
        def answer(begun: int) -> Response:
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 8}
            return Response("1", usage=usage, cost=0.25, seconds=begun + 1.0, retries=1, cut=2 * (begun == 0))

        report = evaluate(Answer, Answers(answer), n=21, concurrency=1).report
        told = numbers_of(report, "solver")
        assert told["tokens"] == {"prompt": 210, "completion": 42} and report["tokens"] == 252
        assert told["cost"] == report["cost"] == pytest.approx(5.25)
        assert told["seconds"] == {"p50": 11.0, "p95": 20.0}
        assert (told["retries"], told["cut_prompts"], told["cached"]) == (21, 1, 0)

    def test_what_a_cache_answers_costs_nothing_and_took_no_time(self) -> None:
        cached = Response("1", usage={"prompt_tokens": 10}, cost=0.25, seconds=3.0, cached=True)
        told = numbers_of(evaluate(Answer, Answers(lambda begun: cached), n=4).report, "solver")
        assert (told["cost"], told["cached"], told["seconds"]) == (0.0, 4, None)

    def test_an_unknown_price_makes_the_cost_unknown_never_0(self) -> None:
        def answer(begun: int) -> Response:
            return Response("1", usage={"prompt_tokens": 10}, cost=None if begun == 2 else 0.25)

        result = evaluate(Answer, Answers(answer), n=4, concurrency=1)
        assert result.report["cost"] is None and numbers_of(result.report, "solver")["cost"] is None
        assert "the cost is unknown" in markdown(result.report)

    def test_a_script_costs_nothing(self) -> None:
        assert evaluate(Answer, says("1"), n=2).report["cost"] == 0

    def test_illegal_actions_are_counted(self) -> None:
        answers = Answers(lambda begun: "?" if begun < 3 else "1")
        told = numbers_of(evaluate(Answer, answers, n=10, concurrency=1).report, "solver")
        assert told["illegal"] == {"actions": 3, "episodes": 3}

    def test_episodes_cut_by_limits_count_as_they_are_and_are_told(self) -> None:
        result = evaluate(Answer, says("again"), n=6, limits=Limits(turns=2))
        assert result.owed == 0 and result.report["episodes"]["cut"] == {"turns": 6}
        assert result.report["episodes"]["endings"] == {"truncated": 6}
        assert "Limits cut episodes short, and these count as they are: 6 by turns." in markdown(result.report)


class TestEstimates:
    @given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=5))
    @settings(max_examples=100, deadline=None)
    def test_pass_k_equals_the_mean_over_all_choices_of_k_tries(self, tasks: list[list[bool]]) -> None:
        for one in passes(tasks, seed=0):
            choices = [list(itertools.combinations(tries, one.k)) for tries in tasks if len(tries) >= one.k]
            means = {way: [sum(map(way, chosen)) / len(chosen) for chosen in choices] for way in (all, any)}
            assert one.hat.mean == pytest.approx(sum(means[all]) / len(choices))
            assert one.at.mean == pytest.approx(sum(means[any]) / len(choices))
            assert one.hat.n == len(choices)

    @given(n=st.integers(1, 12), data=st.data())
    def test_pass_k_of_one_task_is_monotonous(self, n: int, data: st.DataObject) -> None:
        c = data.draw(st.integers(0, n))
        hats, ats = ([way(n, c, k) for k in range(1, n + 1)] for way in (pass_hat_k, pass_at_k))
        assert hats == sorted(hats, reverse=True) and ats == sorted(ats)
        assert hats[0] == pytest.approx(ats[0]) and hats[0] == pytest.approx(c / n)

    @given(st.lists(st.lists(st.floats(-100, 100), max_size=4), min_size=1, max_size=20), st.integers(0, 2**63 - 1))
    @settings(max_examples=50, deadline=None)
    def test_an_interval_holds_the_mean_and_lies_within_the_values(self, tasks: list[list[float]], seed: int) -> None:
        values = [value for task in tasks for value in task]
        told = estimate(tasks, seed)
        if not values:
            assert told is None
            return
        assert told is not None and told.mean == pytest.approx(sum(values) / len(values)) and told.n == len(values)
        if sum(map(bool, tasks)) == 1:
            assert told.low is told.high is None
            return
        assert told.low is not None and told.high is not None
        assert min(values) - 1e-9 <= told.low <= told.high <= max(values) + 1e-9
        assert estimate(tasks, seed) == told

    def test_an_interval_agrees_with_theory_on_a_large_sample(self) -> None:
        rng = random.Random(0)
        values = [[rng.gauss(10, 3)] for _ in range(2000)]
        told = estimate(values, seed=1)
        assert told is not None and told.low is not None and told.high is not None
        assert told.high - told.low == pytest.approx(2 * 1.96 * 3 / math.sqrt(2000), rel=0.1)

    def test_covers_the_truth_as_often_as_it_says(self) -> None:
        rng, hits = random.Random(3), 0
        for trial in range(200):
            told = estimate([[float(rng.random() < 0.6)] for _ in range(60)], trial, proportion=True)
            assert told is not None and told.low is not None and told.high is not None
            hits += told.low <= 0.6 <= told.high
        assert 180 <= hits <= 199

    def test_repeats_that_agree_add_no_certainty(self) -> None:
        once = [[float(value)] for value in (1, 0, 1, 1, 0, 0, 1, 1)]
        single, tenfold = estimate(once, 7), estimate([values * 10 for values in once], 7)
        assert single is not None and tenfold is not None
        assert (single.low, single.high) == (pytest.approx(tenfold.low), pytest.approx(tenfold.high))
        independent = estimate([[value] for values in once for value in values * 10], 7)
        assert independent is not None and independent.low is not None and tenfold.low is not None
        assert independent.low > tenfold.low

    def test_where_all_agree_a_share_is_not_certain(self) -> None:
        told = estimate([[1.0]] * 10, 0, proportion=True)
        assert told is not None and told.high == 1 and told.low == pytest.approx(0.7225, abs=1e-3)  # Wilson, 10 of 10
        assert estimate([[0.0, 0.0]] * 10, 0, proportion=True) == Estimate(
            0.0, 0.0, pytest.approx(1 - 0.7225, abs=1e-3), 20
        )

    def test_tasks_with_unequal_repeats_weigh_by_their_episodes(self) -> None:
        told = estimate([[1.0, 1.0, 1.0], [0.0]], 0)
        assert told is not None and told.mean == 0.75

    @pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2.5), (1, 4), (0.95, 3.85)])
    def test_quantiles_lie_between_their_neighbours(self, share: float, value: float) -> None:
        assert quantile([1, 2, 3, 4], share) == pytest.approx(value)


class TestFailures:
    def test_are_owed_not_scored_and_played_again(self, tmp_path: Path) -> None:
        ill = Answers(lambda begun: TransientLLMError("busy") if begun % 3 == 0 else "1")
        result = evaluate(Answer, ill, n=30, out=tmp_path / "run", concurrency=1)
        assert (result.owed, result.stopped) == (10, "")
        told = result.report["episodes"]
        assert (told["counted"], told["owed"], told["failed"]) == (20, 10, 10)
        assert numbers_of(result.report, "solver")["success"] | {"low": 0} == {"mean": 1, "low": 0, "high": 1, "n": 20}
        (error,) = result.report["errors"]
        assert (error["origin"], error["type"], error["count"]) == ("llm", "TransientLLMError", 10)
        failed = episodes_in(tmp_path / "run" / "errors.jsonl")
        assert len(failed) == 10 and all(one.error and one.error.message == "busy" for one in failed)
        assert not set(ids(tmp_path / "run")) & {one.id for one in failed}
        assert "10 are owed" in (tmp_path / "run" / "report.md").read_text()

        well = Answers(lambda begun: "1", name="answers")
        result = evaluate(Answer, well, n=30, out=tmp_path / "run", resume=True)
        assert result.owed == 0 and well.begun == 10 and result.report["errors"] == []
        assert result.report["episodes"]["failed_ever"] == 10
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
    def test_are_told_by_where_they_came_from(
        self, tmp_path: Path, answer: Exception | str, origin: str, type_: str
    ) -> None:
        answers = Answers(lambda begun: answer if begun in (2, 5) else "1")
        result = evaluate(Answer, answers, n=8, out=tmp_path / "run", concurrency=1)
        assert [(one["origin"], one["type"], one["count"]) for one in result.report["errors"]] == [(origin, type_, 2)]
        assert result.owed == 2 and len(ids(tmp_path / "run")) == 6

    def test_of_everything_stop_the_run_early(self, tmp_path: Path) -> None:
        dead = Answers(lambda begun: LLMError("401: set OPENAI_API_KEY"))
        result = evaluate(Answer, dead, n=5000, out=tmp_path / "run", concurrency=4)
        assert HOPELESS <= dead.begun < HOPELESS + 4 and result.owed == 5000
        assert result.stopped.endswith("failed one after the other, the last with: 401: set OPENAI_API_KEY")
        assert "401: set OPENAI_API_KEY" in (tmp_path / "run" / "report.md").read_text()

    def test_to_be_recorded_stop_it_too(self, tmp_path: Path) -> None:
        result = evaluate(Answer, SlowAgentThatSays("set"), n=5000, out=tmp_path / "run", concurrency=4)
        assert "is not plain data" in result.stopped
        assert HOPELESS <= result.report["episodes"]["failed"] < 1000

    def test_here_and_there_do_not(self) -> None:
        answers = Answers(lambda begun: LLMError("no") if begun % 2 else "1")
        assert evaluate(Answer, answers, n=200, concurrency=1).report["episodes"]["counted"] == 100

    def test_a_scenario_that_cannot_be_made_ends_the_run_and_loses_nothing(self, tmp_path: Path) -> None:
        made = 0

        def make() -> Answer:
            nonlocal made
            made += 1
            if made == 4:  # after the first look, a first env, and another since the first had to go
                raise OSError("no sockets left")
            return Answer()

        answers = Answers(lambda begun: "break" if begun in (5, 9) else "1")
        with pytest.raises(OSError, match="no sockets left"):
            evaluate(make, answers, n=30, out=tmp_path / "run", concurrency=1)
        assert len(ids(tmp_path / "run")) == 8
        assert evaluate(Answer, Answers(lambda begun: "1"), n=30, out=tmp_path / "run", resume=True).owed == 0


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
        assert re.fullmatch(reason, result.stopped) and 7 <= 12 - result.owed <= 9
        again = evaluate(Answer, answers, n=12, out=tmp_path / "run", resume=True, budget=budget)
        assert again.owed == result.owed and again.stopped == result.stopped
        assert evaluate(Answer, answers, n=12, out=tmp_path / "run", resume=True).owed == 0

    def test_of_episodes_is_exact_at_any_concurrency(self) -> None:
        result = evaluate(Answer, SlowAgentThatSays("1"), n=100, concurrency=16, budget=Budget(episodes=7))
        assert len(result.episodes) == 7 and result.owed == 93

    def test_of_time_ends_it(self) -> None:
        begun = time.monotonic()
        result = evaluate(Slow, SlowPolicy(0.02), n=1000, concurrency=4, budget=Budget(seconds=0.3))
        assert result.stopped == "the run's 0.3 seconds are over"
        assert time.monotonic() - begun < 3 and 0 < result.report["episodes"]["counted"] < 200

    @pytest.mark.parametrize("budget", [Budget(cost=5.0), None])
    def test_of_money_are_refused_when_a_price_is_unknown(self, budget: Budget | None) -> None:
        limits = None if budget else Limits(cost=1.0)
        answers = self.priced(cost=None)
        result = evaluate(Answer, answers, n=30, budget=budget, limits=limits)
        assert result.stopped.startswith("the price of some answers is unknown") and answers.begun == 1


class SlowAgentThatSays(SlowAgentOnce):
    def __init__(self, text: str) -> None:
        self._text = text

    async def act(self, observation: Observation, info: Info) -> Response:
        await asyncio.sleep(0.002)
        return Response(self._text)


class TestResume:
    def test_plays_what_is_owed_and_nothing_else(self, tmp_path: Path) -> None:
        whole = evaluate(Slow, GUESS, n=20, repeats=2, seed=1, out=tmp_path / "whole")
        evaluate(Slow, GUESS, n=20, repeats=2, seed=1, out=tmp_path / "run", budget=Budget(episodes=13))
        before = (tmp_path / "run" / "episodes.jsonl").read_bytes()
        result = evaluate(Slow, GUESS, n=20, repeats=2, seed=1, out=tmp_path / "run", resume=True)
        assert (tmp_path / "run" / "episodes.jsonl").read_bytes().startswith(before) and before.count(b"\n") == 13
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert timeless(result.report) == timeless(whole.report)

    def test_of_a_finished_run_writes_the_report_anew(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=5, out=tmp_path / "run")
        before = report_of(tmp_path / "run")
        (tmp_path / "run" / "report.json").unlink()
        (tmp_path / "run" / "bars.png").unlink()
        dead = Answers(lambda begun: ValueError("nobody should be asked"), name="slow")
        assert evaluate(Slow, dead, n=5, out=tmp_path / "run", resume=True).owed == 0
        assert report_of(tmp_path / "run") == before and (tmp_path / "run" / "bars.png").exists()

    def test_of_nothing_starts_a_run(self, tmp_path: Path) -> None:
        assert evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=True).owed == 0

    def test_may_extend_tasks_and_repeats(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=10, repeats=2, out=tmp_path / "whole")
        evaluate(Slow, GUESS, n=6, out=tmp_path / "run")
        first = played(tmp_path / "run")
        evaluate(Slow, GUESS, n=10, repeats=2, out=tmp_path / "run", resume=True)
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert first.items() <= played(tmp_path / "whole").items()
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")
        assert json.loads((tmp_path / "run" / "config.json").read_text())["n"] == 10

    def test_without_n_keeps_the_runs(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=6, out=tmp_path / "run")
        assert evaluate(Slow, GUESS, out=tmp_path / "run", resume=True).plan.n == 6

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"seed": 5}, "seed was 1 and would be 5"),
            ({"n": 4}, "n was 8 and would be 4"),
            ({"seats": {"a": GUESS, "b": says("tails")}}, "seats.b was 'slow' and would be 'tails'"),
            ({"limits": Limits(turns=3)}, "limits.turns was not set and would be 3"),
            ({"scenario": Tasks}, "scenario was 'Slow' and would be 'Tasks'"),
        ],
    )
    def test_refuses_another_configuration_and_tells_the_difference(
        self, tmp_path: Path, change: dict[str, Any], told: str
    ) -> None:
        asked: dict[str, Any] = {"scenario": Slow, "seats": GUESS, "n": 8, "seed": 1}
        evaluate(**asked, out=tmp_path / "run")
        before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()}
        change = change | ({"seats": GUESS, "n": 5} if "scenario" in change else {})
        with pytest.raises(ConfigError, match=f"started with another configuration: .*{re.escape(told)}"):
            evaluate(**asked | change, out=tmp_path / "run", resume=True)
        assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before

    def test_a_change_of_sampling_is_told(self, tmp_path: Path) -> None:
        from marl_gem.llm import Sampling
        from marl_gem.policies import LLMPolicy

        class Parrot:
            name = "parrot"

            async def complete(self, messages: Any, sampling: Any, seed: int, tools: Any = ()) -> Response:
                return Response("1")

        evaluate(Answer, LLMPolicy(Parrot(), sampling=Sampling(temperature=0.5)), n=2, out=tmp_path / "run")
        with pytest.raises(ConfigError, match=r"sampling.parrot.temperature was 0.5 and would be 1.0"):
            evaluate(Answer, LLMPolicy(Parrot()), n=2, out=tmp_path / "run", resume=True)

    def test_knows_options_again_that_are_no_plain_data(self, tmp_path: Path) -> None:
        from marl_gem.registry import register

        register(f"test:Odd-{tmp_path.name}-v0", lambda rounds, judge: Slow(rounds[0]), agents=2)
        asked: dict[str, Any] = {"scenario": f"test:Odd-{tmp_path.name}-v0", "seats": GUESS, "out": tmp_path / "run"}
        evaluate(**asked, n=2, options={"rounds": (1, 2), "judge": says})
        assert evaluate(**asked, n=3, options={"rounds": (1, 2), "judge": says}, resume=True).owed == 0
        with pytest.raises(ConfigError, match=r"options.judge was 'says' and would be 'ids'"):
            evaluate(**asked, n=3, options={"rounds": (1, 2), "judge": ids}, resume=True)

    def test_is_not_guessed(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        with pytest.raises(ConfigError, match="holds a run already"):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run")

    @pytest.mark.parametrize("resume", [False, True])
    @pytest.mark.parametrize(
        ("name", "content"), [("notes.txt", "mine"), ("config.json", '{"policy": {}}'), ("config.json", "{")]
    )
    def test_a_folder_of_something_else_is_left_alone(
        self, tmp_path: Path, name: str, content: str, resume: bool
    ) -> None:
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError):
            evaluate(Slow, GUESS, n=3, out=tmp_path, resume=resume)
        assert [file.name for file in tmp_path.iterdir()] == [name]

    def test_another_version_of_marl_gem_may_go_on(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        config = json.loads((tmp_path / "run" / "config.json").read_text()) | {"version": "0.0.1"}
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        assert evaluate(Slow, GUESS, n=4, out=tmp_path / "run", resume=True).owed == 0

    def test_another_format_is_told(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        config = json.loads((tmp_path / "run" / "config.json").read_text()) | {"format": 99}
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        with pytest.raises(ConfigError, match="has format 99, not 1"):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=True)

    def test_after_a_torn_line_equals_the_whole_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)  # pictures would take most of the time
        evaluate(Answer, says("1"), n=3, out=tmp_path / "whole", concurrency=1)
        lines = (tmp_path / "whole" / "episodes.jsonl").read_bytes().splitlines(keepends=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "run")
        journal = tmp_path / "run" / "episodes.jsonl"
        for cut in range(0, len(lines[-1]), 5):
            journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:cut])
            plan = plan_evaluation(Ground.of(Answer), says("1"), Numbers(n=3))
            run(plan, tmp_path / "run", resume=True)
            assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")

    def test_a_damaged_or_foreign_line_is_told_by_its_number(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=4, out=tmp_path / "run")
        journal = tmp_path / "run" / "episodes.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        for content, told in (
            ([lines[0], b"?\n", lines[2]], "line 2, is damaged"),
            ([lines[0], lines[1], lines[0]], "line 3: episode .* is there twice"),
            ([lines[0], lines[1].replace(b'"seed":', b'"seed":1')], "line 2: episode .* is not of this run"),
            ([lines[0], lines[1].replace(b'"id":"', b'"id":"x')], "line 2: episode .* is not of this run"),
        ):
            journal.write_bytes(b"".join(content))
            with pytest.raises(JournalError, match=told):
                evaluate(Slow, GUESS, n=4, out=tmp_path / "run", resume=True)

    def test_is_refused_while_another_works_on_it(self, tmp_path: Path) -> None:
        evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        with locked(tmp_path / "run"), pytest.raises(JournalError, match="is working on"):
            evaluate(Slow, GUESS, n=3, out=tmp_path / "run", resume=True)


class TestAFolderThatFails:
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        disk = tmp_path / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk], capture_output=True).returncode:
            pytest.skip("making a small disk needs root")
        yield disk
        subprocess.run(["umount", "-l", disk], check=True)

    def test_a_full_disk_is_told_and_costs_nothing_that_counted(self, tmp_path: Path, disk: Path) -> None:
        done: list[int] = []
        plan = plan_evaluation(Ground.of(Slow), SlowPolicy(0.02), Numbers(n=300))
        with pytest.raises(JournalError, match=r"No space left on device.*--resume continues the run"):
            run(plan, disk / "run", watch=lambda progress: done.append(progress.done))
        there = ids(disk / "run")
        assert 0 < done[-1] <= len(there) == len(set(there)) < 300
        subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
        assert run(plan, disk / "run", resume=True).owed == 0
        run(plan, tmp_path / "whole")
        assert played(disk / "run") == played(tmp_path / "whole")
        assert report_of(disk / "run") == report_of(tmp_path / "whole")

    def test_a_disk_that_can_only_be_read_is_told(self, disk: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(JournalError, match=r"cannot write to .*: Read-only file system"):
            evaluate(Slow, GUESS, n=3, out=disk / "run")

    def test_a_folder_that_is_taken_away_stops_the_run_soon(self, tmp_path: Path) -> None:
        def take_away(progress: Progress) -> None:
            (tmp_path / "run").rename(tmp_path / "elsewhere") if progress.done < 300 else None

        begun = time.monotonic()
        plan = plan_evaluation(Ground.of(Slow), SlowPolicy(0.01), Numbers(n=2000))
        with pytest.raises(JournalError, match=r"cannot write to .*No such file or directory"):
            run(plan, tmp_path / "run", concurrency=8, watch=take_away)
        assert time.monotonic() - begun < 5
        (tmp_path / "elsewhere").rename(tmp_path / "run")
        assert len(ids(tmp_path / "run")) == len(set(ids(tmp_path / "run"))) > 0


# Processes that are killed


def marl_gem(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.slow_game", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=_wide(), **options)


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.slow_game", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=_wide())


def _wide() -> dict[str, str]:
    import os

    return os.environ | {"COLUMNS": "500", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    ended = time.monotonic() + 30
    while not condition():
        assert process.poll() is None and time.monotonic() < ended, process.communicate()
        time.sleep(0.005)


SLOW = ("test:Slow-v0", "--seat", "a=scripted:slow", "--seat", "b=scripted:slow")


class TestKilled:
    def test_at_twenty_random_moments_each_episode_is_there_once(self, tmp_path: Path) -> None:
        asked = ("eval", *SLOW, "-n", "300", "--repeats", "2", "--concurrency", "4")
        journal, before, dice = tmp_path / "run" / "episodes.jsonl", b"", random.Random(4)
        for moment in range(20):
            process = started(*asked, "--out", tmp_path / "run", "--resume")
            if moment % 5:
                grown = size(journal) + dice.randrange(1, 3000)
                wait_for(lambda grown=grown: size(journal) >= grown, process)  # type: ignore[misc]
                time.sleep(dice.uniform(0, 0.06))
            else:
                time.sleep(dice.uniform(0, 0.6))
            process.kill()
            process.communicate()
            now = journal.read_bytes() if journal.exists() else b""
            whole = before[: before.rfind(b"\n") + 1]
            assert now.startswith(whole)  # what was there stays
            before = now
        assert 0 < before.count(b"\n") < 600
        finished = marl_gem("eval", "--out", tmp_path / "run", "--resume", "--concurrency", "64")
        assert finished.returncode == 0, finished.stderr
        assert Counter(ids(tmp_path / "run")) == Counter(f"{i}.{repeat}" for i in range(300) for repeat in range(2))
        unbroken = marl_gem(*asked[:-1], "64", "--out", tmp_path / "whole")
        assert unbroken.returncode == 0, unbroken.stderr
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")

    def test_leaves_the_lock_free_and_held_while_it_lives(self, tmp_path: Path) -> None:
        process = started("eval", *SLOW, "-n", "5000", "--out", tmp_path / "run")
        wait_for(lambda: size(tmp_path / "run" / "episodes.jsonl") > 0, process)
        second = marl_gem("eval", "--out", tmp_path / "run", "--resume")
        assert second.returncode == 2 and f"process {process.pid} is working on" in second.stderr
        process.kill()
        process.communicate()
        third = marl_gem("eval", "--out", tmp_path / "run", "--resume", "--run-max-episodes", "1")
        assert third.returncode == 1 and "episodes are owed" in third.stderr


class TestInterrupted:
    def test_once_finishes_what_is_live_and_reports(self, tmp_path: Path) -> None:
        process = started("eval", *SLOW, "-n", "5000", "--concurrency", "8", "--out", tmp_path / "run")
        wait_for(lambda: size(tmp_path / "run" / "episodes.jsonl") > 0, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "stopping after the episodes that are live; Ctrl-C again stops at once" in err
        assert f"marl-gem eval --out {tmp_path / 'run'} --resume" in err and "stopped early: interrupted" in out
        there, report = ids(tmp_path / "run"), report_of(tmp_path / "run")
        assert len(there) == len(set(there)) == report["episodes"]["counted"] < 5000
        assert all(one.ending == "terminated" for one in episodes_in(tmp_path / "run" / "episodes.jsonl"))
        assert size(tmp_path / "run" / "errors.jsonl") == 0

    def test_twice_stops_at_once(self, tmp_path: Path) -> None:
        seats = ("--seat", "a=scripted:asleep", "--seat", "b=scripted:asleep")
        process = started("eval", "test:Slow-v0", *seats, "-n", "9", "-o", "rounds=100", "--out", tmp_path / "run")
        wait_for(lambda: (tmp_path / "run" / "errors.jsonl").exists(), process)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None  # 80 seconds would still be needed
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130 and time.monotonic() - begun < 5
        assert "stopped at once" in err and f"--out {tmp_path / 'run'} --resume" in err and "Traceback" not in err
        assert ids(tmp_path / "run") == []


# Many matches


class TestAGrid:
    SEATS: Mapping[str, Any] = {"a": [says("heads"), GUESS], "b": [says("heads"), says("tails"), GUESS]}

    def test_plays_all_combinations_on_the_same_tasks(self, tmp_path: Path) -> None:
        result = evaluate(Slow, self.SEATS, n=6, out=tmp_path / "grid")
        folders = sorted(path.name for path in (tmp_path / "grid").iterdir() if path.is_dir())
        assert folders == [
            "01_heads_heads", "02_heads_tails", "03_heads_slow", "04_slow_heads", "05_slow_tails", "06_slow_slow",
        ]  # fmt: skip
        for folder in folders:
            assert len(set(ids(tmp_path / "grid" / folder))) == 6
            alone = json.loads((tmp_path / "grid" / folder / "report.json").read_text())
            assert alone["matches"][0] == next(m for m in result.report["matches"] if m["folder"] == folder)
        assert (tmp_path / "grid" / "heatmap.png").exists() and (tmp_path / "grid" / "bars.png").exists()
        alone = evaluate(Slow, {"a": says("heads"), "b": says("tails")}, n=6).report["matches"][0]["agents"]["a"][
            "return"
        ]
        assert numbers_of(result.report, "a", 1)["return"]["mean"] == alone["mean"]

    def test_forms_a_table(self) -> None:
        result = evaluate(Slow, self.SEATS, n=4)
        grid = result.report["grid"]
        assert (grid["row_agents"], grid["column_agent"]) == (["a"], "b")
        assert (grid["rows"], grid["columns"]) == (["heads", "slow"], ["heads", "tails", "slow"])
        assert grid["places"]["05"] == ["slow", "tails"]
        text = markdown(result.report)
        share = estimate_text(numbers_of(result.report, "b", 4)["success"], share=True)
        assert re.search(rf"\| slow \| [^|]* \| {re.escape(share)} \| [^|]* \|", text)

    def test_stopped_early_has_played_the_same_tasks_everywhere(self, tmp_path: Path) -> None:
        evaluate(Slow, self.SEATS, n=20, out=tmp_path / "grid", concurrency=1, budget=Budget(episodes=24))
        matches = json.loads((tmp_path / "grid" / "report.json").read_text())["matches"]
        assert [match["episodes"] for match in matches] == [4] * 6

    def test_is_resumed_as_a_whole(self, tmp_path: Path) -> None:
        whole = evaluate(Slow, self.SEATS, n=5, repeats=2, out=tmp_path / "whole")
        evaluate(Slow, self.SEATS, n=5, repeats=2, out=tmp_path / "grid", budget=Budget(episodes=17))
        result = evaluate(Slow, self.SEATS, n=5, repeats=2, out=tmp_path / "grid", resume=True)
        assert timeless(result.report) == timeless(whole.report)
        for match in result.report["matches"]:
            assert played(tmp_path / "grid" / match["folder"]) == played(tmp_path / "whole" / match["folder"])

    def test_a_part_is_not_resumed_alone(self, tmp_path: Path) -> None:
        evaluate(Slow, self.SEATS, n=2, out=tmp_path / "grid")
        with pytest.raises(ConfigError, match=r"01_heads_heads is a part of the run in .*grid; resume that"):
            evaluate(
                Slow, {"a": says("heads"), "b": says("heads")}, n=2, out=tmp_path / "grid/01_heads_heads", resume=True
            )

    def test_rows_are_combinations_when_three_seats_vary(self) -> None:
        seats = {f"seat_{i}": [says("1"), says("2")] for i in range(3)}
        grid = evaluate(lambda: Highest(3), seats, n=1).report["grid"]
        assert grid["rows"] == ["1, 1", "1, 2", "2, 1", "2, 2"] and grid["columns"] == ["1", "2"]

    def test_the_same_player_twice_in_a_seat_is_told(self) -> None:
        with pytest.raises(ConfigError, match=r"seat 'a' must be one or more, all different; not \['heads', 'heads'\]"):
            evaluate(Slow, {"a": [says("heads"), says("heads")], "b": GUESS}, n=1)

    def test_long_names_become_folders_and_labels(self, tmp_path: Path) -> None:
        url = "Qwen/Qwen3-1.7B@http://127.0.0.1:8000/v1,temperature=0"
        seats = {"a": [Player(url, says("heads", "Qwen/Qwen3-1.7B")), Player("../x$y$", says("tails", "../x$y$"))],
                 "b": [GUESS]}  # fmt: skip
        evaluate(Slow, seats, n=2, out=tmp_path / "grid")
        assert sorted(path.name for path in (tmp_path / "grid").iterdir() if path.is_dir()) == [
            "01_Qwen-Qwen3-1.7B", "02_x-y",
        ]  # fmt: skip
        assert [path.name for path in tmp_path.iterdir()] == ["grid"]


class TestATournament:
    PLAYERS: Mapping[str, Any] = {"low": says("1"), "high": says("9"), "middle": says("5"), "twin": says("5", "twin")}

    def test_seats_everybody_everywhere_equally_often_on_the_same_tasks(self) -> None:
        result = tournament(Highest, self.PLAYERS, n=4)
        at = Counter[tuple[str, str]]()
        seeds: dict[str, set[int]] = {}
        for episode in result.episodes:
            match = result.plan.matches[result.plan.slots[episode.id].match]
            at.update((name, seat) for seat, name in match.labels.items())
            seeds.setdefault(match.name, set()).add(episode.seed)
            assert episode.models == {seat: self.PLAYERS[name].name for seat, name in match.labels.items()}
        assert set(at.values()) == {3 * 4} and len(at) == 8
        assert len(seeds) == 12 and len(set(map(frozenset, seeds.values()))) == 1

    def test_tells_who_is_how_strong(self) -> None:
        told = tournament(Highest, self.PLAYERS, n=10).report["tournament"]
        names = [player["name"] for player in told["players"]]
        assert names[0] == "high" and names[-1] == "low"
        by_name = {player["name"]: player for player in told["players"]}
        tally = {name: (one["games"], one["won"], one["drawn"], one["lost"]) for name, one in by_name.items()}
        assert tally == {"high": (60, 60, 0, 0), "low": (60, 0, 0, 60), "middle": (60, 20, 20, 20),
                         "twin": (60, 20, 20, 20)}  # fmt: skip
        assert {name: one["score"]["mean"] for name, one in by_name.items()} == {
            "high": 1, "low": 0, "middle": 0.5, "twin": 0.5,
        }  # fmt: skip
        assert by_name["high"]["rating"]["mu"] > 30 > 25 > by_name["low"]["rating"]["mu"]
        assert abs(by_name["middle"]["rating"]["mu"] - by_name["twin"]["rating"]["mu"]) < 1
        assert all(one["rating"]["sigma"] < 25 / 3 for one in by_name.values())

    def test_has_a_matrix_whose_halves_agree(self) -> None:
        players = {"first": ScriptedPolicy(lambda o, info: info["legal_actions"][0], "f"), "dice": RandomPolicy()}
        told = tournament("game:TicTacToe-v0", players, n=40).report["tournament"]
        ahead, behind = told["matrix"]["first"]["dice"], told["matrix"]["dice"]["first"]
        assert ahead["mean"] + behind["mean"] == pytest.approx(1) and ahead["n"] == 80
        assert ahead["mean"] > 0.5 and told["players"][0]["name"] == "first"
        assert told["seats"]["player_0"]["mean"] + told["seats"]["player_1"]["mean"] == pytest.approx(1)
        assert told["seats"]["player_0"]["mean"] > 0.5  # moving first helps

    def test_of_three_seats(self) -> None:
        players = {"low": says("1"), "high": says("9"), "middle": says("5")}
        result = tournament(lambda: Highest(3), players, n=2)
        assert len(result.episodes) == 6 * 2
        told = result.report["tournament"]
        assert [player["name"] for player in told["players"]] == ["high", "middle", "low"]
        assert told["matrix"]["middle"]["low"]["mean"] == 1 and told["matrix"]["middle"]["high"]["mean"] == 0
        assert [player["score"]["mean"] for player in told["players"]] == [1, 0.5, 0]

    def test_lies_in_one_folder_and_resumes(self, tmp_path: Path) -> None:
        players = {"guess": GUESS, "other": SlowPolicy(), "heads": says("heads")}
        tournament(Slow, players, n=6, out=tmp_path / "whole")
        tournament(Slow, players, n=6, out=tmp_path / "run", budget=Budget(episodes=11))
        assert len(ids(tmp_path / "run")) == 11
        tournament(Slow, players, n=6, out=tmp_path / "run", resume=True)
        assert played(tmp_path / "run") == played(tmp_path / "whole")
        assert report_of(tmp_path / "run") == report_of(tmp_path / "whole")
        assert (tmp_path / "run" / "heatmap.png").exists()
        with pytest.raises(ConfigError, match=r"players.heads was 'heads' and would be not set"):
            tournament(Slow, {"guess": GUESS, "other": GUESS}, n=6, out=tmp_path / "run", resume=True)

    def test_without_openskill_has_all_but_the_ratings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "openskill.models", None)
        result = tournament(Highest, {"low": says("1"), "high": says("9")}, n=2)
        told = result.report["tournament"]
        assert [player["name"] for player in told["players"]] == ["high", "low"]
        assert told["players"][0]["rating"] is None
        assert "pip install 'marl-gem[eval]'" in told["left_out"] and told["left_out"] in markdown(result.report)

    @pytest.mark.parametrize(
        ("scenario", "players", "told"),
        [
            (Answer, {"a": GUESS, "b": GUESS}, "has one seat; to compare players in it, use marl-gem eval --grid"),
            (Highest, {"a": GUESS}, "has 2 seats; name at least as many players, not 1"),
            (Highest, {"a": GUESS, "b c": GUESS}, "'b c' is no name for a player"),
        ],
    )
    def test_that_cannot_be_held_is_told(self, scenario: Any, players: Any, told: str) -> None:
        with pytest.raises(ConfigError, match=told):
            tournament(scenario, players, n=1)


class TestWhatIsWrongIsTold:
    @pytest.mark.parametrize("numbers", [{"n": 0}, {"repeats": 0}, {"seed": -1}])
    def test_numbers(self, numbers: dict[str, int]) -> None:
        with pytest.raises(ConfigError, match="n and repeats count from 1, the seed from 0"):
            evaluate(Slow, GUESS, **numbers)  # type: ignore[arg-type]

    def test_seats(self) -> None:
        with pytest.raises(AgentError, match=r"has the seats a, b; without a player: \['b'\], unknown: \['c'\]"):
            evaluate(Slow, {"a": GUESS, "c": GUESS})

    def test_options_of_what_is_no_id(self) -> None:
        with pytest.raises(ConfigError, match="options are for scenarios named by an id"):
            evaluate(Slow, GUESS, options={"rounds": 3})

    def test_random_play_where_no_legal_actions_are_known_before_anything_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(AgentError, match="random play in seat 'solver' needs a list of legal actions"):
            evaluate(Answer, RandomPolicy(), n=3, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()


class TestTheReport:
    def test_is_written_without_matplotlib(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from marl_gem.evaluation.pictures import pictures

        monkeypatch.setitem(sys.modules, "matplotlib", None)
        result = evaluate(Slow, GUESS, n=3, out=tmp_path / "run")
        assert not list((tmp_path / "run").glob("*.png")) and ".png" not in (tmp_path / "run" / "report.md").read_text()
        with pytest.raises(MissingPackage, match=r"pip install 'marl-gem\[eval\]'"):
            pictures(result.report)

    def test_of_nothing_played_can_be_read(self, tmp_path: Path) -> None:
        for seats in (GUESS, {"a": [GUESS, says("heads")], "b": GUESS}):
            result = evaluate(Slow, seats, n=3, out=tmp_path / str(len(str(seats))), budget=Budget(episodes=0))
            assert result.owed in (3, 6) and "are owed" in markdown(result.report)
        empty = tournament(Slow, {"a": GUESS, "b": GUESS}, n=3, out=tmp_path / "t", budget=Budget(episodes=0))
        assert "6 are owed" in markdown(empty.report)

    def test_of_hostile_names_keeps_its_tables(self, tmp_path: Path) -> None:
        odd = "a|b\n<script>$x$\ud800"
        result = evaluate(
            Slow, {"a": says("heads", odd), "b": says("tails", odd)}, n=2, repeats=2, out=tmp_path / "run"
        )
        text = (tmp_path / "run" / "report.md").read_text()
        assert "<script>" not in text and "a\\|b &lt;script>" in text
        assert result.owed == 0

    @pytest.mark.parametrize(
        ("cost", "text"), [(None, "unknown"), (0.0, "–"), (0.0042, "$0.0042"), (0.5, "$0.5"), (1234.5, "$1,234.50")]
    )
    def test_tells_money(self, cost: float | None, text: str) -> None:
        assert money_text(cost) == text

    def test_has_the_versions_and_how_to_play_it_again(self, tmp_path: Path) -> None:
        evaluate("game:KuhnPoker-v0", Player("random", RandomPolicy()).policy, n=3, out=tmp_path / "run")
        text = (tmp_path / "run" / "report.md").read_text()
        assert "## To play it again" in text and "marl_gem 0.1.0" in text and "derive_seed(0, 'eval', i)" in text


class TestTheCommandLine:
    def test_eval(self, tmp_path: Path) -> None:
        finished = marl_gem(
            "eval", "game:TicTacToe-v0", "--seat", "player_1=random", "-n", "40", "--out", tmp_path / "r"
        )
        assert finished.returncode == 0, finished.stderr
        assert "40 episodes count" in finished.stdout and "win rate" in finished.stdout
        assert str(tmp_path / "r" / "report.md") in finished.stdout and "40/40 episodes" in finished.stderr
        command = report_of(tmp_path / "r")["command"]
        assert command == (
            "marl-gem eval game:TicTacToe-v0 --seat player_0=random --seat player_1=random -n 40 --seed 0"
        )
        again = marl_gem(*command.split()[1:], "--out", tmp_path / "again")
        assert again.returncode == 0 and played(tmp_path / "r") == played(tmp_path / "again")
        more = marl_gem("eval", "--out", tmp_path / "r", "--resume", "-n", "50")
        assert more.returncode == 0 and len(ids(tmp_path / "r")) == 50

    def test_a_grid(self, tmp_path: Path) -> None:
        asked = (
            "eval",
            "test:Slow-v0",
            "--grid",
            "--seat",
            "a=random",
            "--seat",
            "a=scripted:slow",
            "--seat",
            "b=random",
        )
        finished = marl_gem(*asked, "-n", "10", "--out", tmp_path / "g")
        assert finished.returncode == 0, finished.stderr
        assert "Success rate of a" in finished.stdout and (tmp_path / "g" / "02_slow" / "episodes.jsonl").exists()
        assert marl_gem("eval", "--out", tmp_path / "g", "--resume").returncode == 0
        command = report_of(tmp_path / "g")["command"]
        assert marl_gem(*command.split()[1:], "--out", tmp_path / "h").returncode == 0
        assert report_of(tmp_path / "h") == report_of(tmp_path / "g")

    def test_a_tournament(self, tmp_path: Path) -> None:
        asked = ("tournament", "game:KuhnPoker-v0", "--player", "x=random", "--player", "y=random")
        finished = marl_gem(*asked, "-n", "10", "--out", tmp_path / "t")
        assert finished.returncode == 0, finished.stderr
        assert "rating" in finished.stdout and len(ids(tmp_path / "t")) == 20
        wrong = marl_gem("eval", "--out", tmp_path / "t", "--resume")
        assert wrong.returncode == 2 and "marl-gem tournament --out" in wrong.stderr
        assert marl_gem("tournament", "--out", tmp_path / "t", "--resume").returncode == 0

    def test_limits_and_options_reach_the_run(self, tmp_path: Path) -> None:
        asked = ("eval", *SLOW, "-n", "4", "-o", "rounds=3", "--max-turns", "5", "--run-max-episodes", "2")
        finished = marl_gem(*asked, "--out", tmp_path / "r")
        assert finished.returncode == 1 and "2 episodes are owed" in finished.stderr
        assert all(len(one.turns) == 5 for one in episodes_in(tmp_path / "r" / "episodes.jsonl"))
        assert marl_gem("eval", "--out", tmp_path / "r", "--resume").returncode == 0
        assert all(len(one.turns) == 5 for one in episodes_in(tmp_path / "r" / "episodes.jsonl"))

    def test_a_person_plays_one_game_after_the_other(self, tmp_path: Path) -> None:
        asked = ("eval", "test:Slow-v0", "--seat", "a=human", "-n", "2", "--out", tmp_path / "r")
        finished = marl_gem(*asked, input="heads\ntails\nheads\nheads\n")
        assert finished.returncode == 0, finished.stderr
        said = [
            [turn.response.text for turn in one.turns_of("a")] for one in episodes_in(tmp_path / "r/episodes.jsonl")
        ]
        assert said == [["heads", "tails"], ["heads", "heads"]]

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("eval",), "which scenario?"),
            (("eval", "--resume"), "Name its folder with --out"),
            (("eval", "game:Kuhn-v0"), "Did you mean 'game:KuhnPoker-v0'"),
            (("eval", "test:Slow-v0", "--seat", "a"), "'a' lacks a side; write NAME=WHO"),
            (("eval", "test:Slow-v0", "--seat", "c=random"), "has no agent 'c'; its agents are a, b"),
            (("eval", "test:Slow-v0", "--seat", "a=rondom"), "Did you mean random"),
            (("eval", "test:Slow-v0", "--seat", "a=random", "--seat", "a=human"), "--grid plays all combinations"),
            (("eval", "test:Slow-v0", "--grid"), "a grid needs a seat that is given several times"),
            (("eval", "test:Slow-v0", "-o", "turns=3"), "It takes: rounds"),
            (("eval", "test:Slow-v0", "-n", "0"), "-n"),
            (("tournament", "test:Slow-v0", "--player", "random"), "'random' lacks a side; write NAME=WHO"),
            (("tournament", "test:Slow-v0", "--player", "a=random", "--player", "a=random"), "two players are called"),
            (("tournament", "test:Slow-v0", "--player", "a=random"), "name at least as many players"),
        ],
    )
    def test_wrong_arguments_are_told(self, arguments: tuple[str, ...], told: str, capsys: Any) -> None:
        """In this process, which is as good here, and quicker."""
        from marl_gem.cli import main
        from tests import slow_game

        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as left:
            patch.setattr(sys, "argv", ["marl-gem", *arguments])
            patch.setenv("COLUMNS", "500")
            _registered(slow_game)
            main()
        assert left.value.code == 2
        assert told in " ".join(capsys.readouterr().err.split())


def _registered(slow_game: Any) -> None:
    from marl_gem import registry

    if "test:Slow-v0" not in {scenario.id for scenario in registry.list()}:
        registry.register("test:Slow-v0", slow_game.Slow, agents=2)
