"""An evaluation: what it plays, what it leaves, and its numbers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from marl_gem import Response
from marl_gem.errors import ConfigError
from marl_gem.evaluation import Numbers, Player, Progress, evaluate, plan_evaluation, run, run_async
from marl_gem.evaluation.markdown import markdown
from marl_gem.evaluation.report import IllegalActions, Latency, TokenCounts, read_report
from marl_gem.policies import Info, RandomPolicy
from marl_gem.seeding import derive_seed
from marl_gem.types import Limits, Observation
from tests.evaluation.helpers import (
    GUESS,
    Answer,
    Answers,
    Highest,
    SlowAgentOnce,
    Tasks,
    ids,
    numbers_of,
    played,
    report_of,
)
from tests.slow_game import Slow, SlowPolicy
from tests.toys import always


class TestARun:
    def test_leaves_what_it_promises(self, tmp_path: Path) -> None:
        result = evaluate(Slow, {"a": GUESS, "b": always("heads")}, n=10, repeats=2, seed=3, out=tmp_path / "run")
        folder = tmp_path / "run"
        assert {file.name for file in folder.iterdir()} == {
            ".lock", "config.json", "episodes.jsonl", "errors.jsonl",
            "report.json", "report.md", "bars.png", "pass.png",
        }  # fmt: skip
        config = json.loads((folder / "config.json").read_text())
        assert config["seats"] == {"a": "slow", "b": "heads"}
        assert (config["scenario"], config["n"], config["repeats"], config["seed"]) == ("Slow", 10, 2, 3)
        assert sorted(ids(folder)) == sorted(f"{index}.{repeat}" for index in range(10) for repeat in range(2))
        assert read_report(folder) == result.report
        assert result.pending == 0 and result.stopped == "" and result.episodes == ()
        for name in ("bars.png", "pass.png"):
            assert (folder / name).read_bytes().startswith(b"\x89PNG")

    def test_without_a_folder_keeps_its_episodes(self) -> None:
        result = evaluate(Slow, GUESS, n=5)
        assert sorted(episode.id for episode in result.episodes) == [f"{index}.0" for index in range(5)]
        assert result.report.episodes.counted == 5 and result.folder is None

    def test_plays_the_tasks_that_follow_from_the_seed(self) -> None:
        result = evaluate(Slow, GUESS, n=4, repeats=2, seed=9)
        assert {(episode.id, episode.seed, episode.repeat) for episode in result.episodes} == {
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
        by_id = {episode.id: episode for episode in result.episodes}
        texts = {id: [turn.response.text for turn in episode.turns] for id, episode in by_id.items()}
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
            plan = plan_evaluation(Slow, GUESS, Numbers(n=3))
            return (await run_async(plan)).report.episodes.counted

        assert asyncio.run(main()) == 3

    def test_reports_its_progress_by_what_is_on_disk(self, tmp_path: Path) -> None:
        seen: list[Progress] = []

        def watch(progress: Progress) -> None:
            seen.append(progress)
            assert len(ids(tmp_path / "run")) >= progress.done

        plan = plan_evaluation(Slow, SlowPolicy(0.005), Numbers(n=60))
        run(plan, tmp_path / "run", concurrency=4, watch=watch)
        assert len(seen) > 2 and seen[-1].done == seen[-1].total == 60
        assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
        assert seen[0].left is not None and seen[0].left > 0
        assert seen[-1].success == {
            agent: pytest.approx(numbers_of(read_report(tmp_path / "run"), agent).success.mean) for agent in "ab"
        }

    def test_by_id_with_options_gives_its_command(self, tmp_path: Path) -> None:
        result = evaluate("game:KuhnPoker-v0", {seat: Player("random", RandomPolicy()) for seat in
                          ("player_0", "player_1")}, n=7, limits=Limits(turns=3), options={"max_steps": 9})  # fmt: skip
        assert result.report.command == (
            "marl-gem eval game:KuhnPoker-v0 --seat player_0=random --seat player_1=random -n 7 --seed 0 "
            "--max-turns 3 -o max_steps=9"
        )
        assert evaluate(Slow, GUESS, n=1).report.command is None


class TestTasks:
    def test_are_counted_by_the_scenario_and_given_by_number(self) -> None:
        result = evaluate(Tasks, always("1"), repeats=2)
        assert result.plan.n == 5
        assert {(episode.options["task"], episode.turns[0].observation) for episode in result.episodes} == {
            (index, f"task {index}") for index in range(5)
        }
        assert len(evaluate(Tasks, always("1"), n=2).episodes) == 2

    def test_more_than_there_are_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="has 5 tasks, not 6; to play each again use repeats"):
            evaluate(Tasks, always("1"), n=6)

    def test_a_scenario_without_them_gets_no_option(self) -> None:
        assert evaluate(Answer, always("1"), n=1).episodes[0].options == {}


class TestSuccess:
    @pytest.mark.parametrize(("text", "success"), [("yes", 1.0), ("no", 0.0), ("3", 1.0), ("0", 0.0), ("-2", 0.0)])
    def test_is_what_the_scenario_says_else_a_return_above_0(self, text: str, success: float) -> None:
        report = evaluate(Answer, always(text), n=3).report
        assert numbers_of(report, "solver").success.mean == success
        assert report.measure == "success rate"

    def test_is_winning_alone_where_the_scenario_is_zero_sum(self) -> None:
        def rates(*texts: str) -> list[float]:
            env, seats = lambda: Highest(len(texts)), {f"seat_{i}": always(text) for i, text in enumerate(texts)}
            report = evaluate(env, seats, n=2).report
            assert report.measure == "win rate"
            return [text.success.mean for text in report.matches[0].agents.values()]

        assert rates("5", "3") == [1, 0]
        assert rates("5", "4", "0") == [1, 0, 0]  # the second's return is above 0, too
        assert rates("5", "5") == [0, 0]


class TestTheNumbers:
    def test_are_those_of_the_episodes(self) -> None:
        result = evaluate(Slow, GUESS, n=50, repeats=2, seed=5)
        numbers = numbers_of(result.report, "b")
        returns = [episode.returns["b"] for episode in result.episodes]
        assert numbers.return_.mean == pytest.approx(sum(returns) / 100) and numbers.return_.n == 100
        assert numbers.success.mean == sum(value > 0 for value in returns) / 100
        assert numbers.turns == 2 and result.report.matches[0].turns == 4
        assert numbers.return_.low < numbers.return_.mean < numbers.return_.high

    def test_pass_k_counts_tasks_with_all_or_any_of_k_successes(self) -> None:
        pattern = ["1111", "1110", "1000", "0000"]  # 4 tasks, 4 repeats; played repeat by repeat
        answers = Answers(lambda begun: pattern[begun % 4][begun // 4])
        report = evaluate(Answer, answers, n=4, repeats=4, concurrency=1).report
        numbers = {entry.k: entry for entry in numbers_of(report, "solver").pass_}
        assert [numbers[k].hat.mean for k in (1, 2, 3, 4)] == [0.5, 0.375, 0.3125, 0.25]
        assert [numbers[k].at.mean for k in (1, 2, 3, 4)] == [0.5, 0.625, 0.6875, 0.75]

    def test_of_models_are_added_up(self) -> None:
        def answer(begun: int) -> Response:
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 8}
            return Response("1", usage=usage, cost=0.25, seconds=begun + 1.0, retries=1, cut=2 * (begun == 0))

        report = evaluate(Answer, Answers(answer), n=21, concurrency=1).report
        numbers = numbers_of(report, "solver")
        assert numbers.tokens == TokenCounts(prompt=210, completion=42) and report.tokens == 252
        assert numbers.cost == report.cost == pytest.approx(5.25)
        assert numbers.seconds == Latency(p50=11.0, p95=20.0)
        assert (numbers.retries, numbers.cut_prompts, numbers.cached) == (21, 1, 0)

    def test_what_a_cache_answers_costs_nothing_and_took_no_time(self) -> None:
        cached = Response("1", usage={"prompt_tokens": 10}, cost=0.25, seconds=3.0, cached=True)
        numbers = numbers_of(evaluate(Answer, Answers(lambda begun: cached), n=4).report, "solver")
        assert (numbers.cost, numbers.cached, numbers.seconds) == (0.0, 4, None)

    def test_an_unknown_price_makes_the_cost_unknown_never_0(self) -> None:
        def answer(begun: int) -> Response:
            return Response("1", usage={"prompt_tokens": 10}, cost=None if begun == 2 else 0.25)

        result = evaluate(Answer, Answers(answer), n=4, concurrency=1)
        assert result.report.cost is None and numbers_of(result.report, "solver").cost is None
        assert "the cost is unknown" in markdown(result.report)

    def test_a_script_costs_nothing(self) -> None:
        assert evaluate(Answer, always("1"), n=2).report.cost == 0

    def test_illegal_actions_are_counted(self) -> None:
        answers = Answers(lambda begun: "?" if begun < 3 else "1")
        numbers = numbers_of(evaluate(Answer, answers, n=10, concurrency=1).report, "solver")
        assert numbers.illegal == IllegalActions(actions=3, episodes=3)

    def test_episodes_cut_by_limits_count_as_they_are_and_are_reported(self) -> None:
        result = evaluate(Answer, always("again"), n=6, limits=Limits(turns=2))
        assert result.pending == 0 and result.report.episodes.cut == {"turns": 6}
        assert result.report.episodes.endings == {"truncated": 6}
        assert "Limits cut episodes short, and these count as they are: 6 by turns." in markdown(result.report)
