"""What an episode comes to for each agent."""

from __future__ import annotations

from typing import Any

import pytest

from marl_gem.runs.outcomes import Outcome, contest_of, judge, outcomes
from marl_gem.types import Episode, EpisodeError, Response, Turn, from_json, to_json


def episode(returns: dict[str, float], zero_sum: bool | None = None, **fields: Any) -> Episode:
    fields = {"turns": (), "ending": "terminated", **fields}
    return Episode("1", "s", 0, returns=returns, zero_sum=zero_sum, **fields)


def results(returns: dict[str, float], zero_sum: bool | None = True, **fields: Any) -> list[str | None]:
    return [outcome.result for outcome in outcomes(episode(returns, zero_sum, **fields)).values()]


def successes(returns: dict[str, float], zero_sum: bool | None = None, **fields: Any) -> list[bool]:
    return [outcome.success for outcome in outcomes(episode(returns, zero_sum, **fields)).values()]


class TestContests:
    @pytest.mark.parametrize(
        ("returns", "expected"),
        [
            ((1.0, -1.0), ["win", "loss"]),
            ((0.0, 0.0), ["draw", "draw"]),
            ((2.0, 1.0, -3.0), ["win", "loss", "loss"]),
            ((2.0, 2.0, -4.0), ["draw", "draw", "loss"]),
        ],
    )
    def test_are_won_by_the_highest_return_alone(self, returns: tuple[float, ...], expected: list[str]) -> None:
        by_agent = dict(zip("abc", returns, strict=False))
        assert results(by_agent) == expected
        assert successes(by_agent, zero_sum=True) == [result == "win" for result in expected]

    @pytest.mark.parametrize(("value", "result"), [(0.5, "win"), (0.0, "draw"), (-0.5, "loss")])
    def test_of_one_agent_compare_its_return_with_0(self, value: float, result: str) -> None:
        assert results({"a": value}) == [result]

    def test_go_by_the_scenarios_word_where_there_is_one(self) -> None:
        infos: dict[str, Any] = {"a": {"success": False}, "b": {"success": True}}
        assert results({"a": 0.0, "b": 0.0}, final_infos=infos) == ["draw", "win"]
        assert results({"a": 1.0, "b": -1.0}, final_infos=infos) == ["loss", "win"]


class TestTasks:
    def test_are_solved_by_a_return_above_0(self) -> None:
        assert successes({"user": 1.0, "assistant": 1.0}) == [True, True]
        assert successes({"user": 0.0, "assistant": 0.5}, zero_sum=False) == [False, True]
        assert results({"user": 1.0, "assistant": 1.0}, zero_sum=None) == [None, None]

    def test_go_by_the_scenarios_word_where_there_is_one(self) -> None:
        infos: dict[str, Any] = {"a": {"success": False}, "b": {"success": True}, "c": {"success": "yes"}}
        assert successes({"a": 1.0, "b": 0.0, "c": 1.0}, final_infos=infos) == [False, True, True]

    @pytest.mark.parametrize(
        ("info", "fields", "reason"),
        [
            ({"failure": "data", "illegal": "?"}, {"limit": "turns"}, "data"),
            ({"failure": ""}, {"limit": "turns", "ending": "truncated"}, "cut by turns"),
            ({"failure": 3, "illegal": "?"}, {}, "illegal action"),
            ({}, {"ending": "truncated"}, "truncated"),
            ({}, {}, ""),
        ],
    )
    def test_say_why_they_were_not_solved(self, info: dict[str, Any], fields: dict[str, Any], reason: str) -> None:
        judged = outcomes(episode({"a": 0.0, "b": 1.0}, final_infos={"a": info, "b": info}, **fields))
        assert (judged["a"].reason, judged["b"].reason) == (reason, "")


def test_illegal_actions_are_counted_by_agent() -> None:
    turns = tuple(Turn(agent, "", Response(""), info=info) for agent, info in
                  (("a", {"illegal": "no"}), ("b", {}), ("a", {"illegal": "no"}), ("a", {})))  # fmt: skip
    judged = outcomes(episode({"a": -1.0, "b": 1.0}, turns=turns))
    assert (judged["a"].illegal, judged["b"].illegal) == (2, 0)


def test_a_failed_episode_has_no_outcome() -> None:
    assert outcomes(episode({"a": 1.0}, error=EpisodeError("env", "RuntimeError", "broken"), ending="error")) == {}


class TestUndeclared:
    """Records of scenarios that declare nothing, and of older versions."""

    def test_are_what_the_caller_says(self) -> None:
        (won, _), (task, _) = (outcomes(episode({"a": 2.0, "b": 1.0}), known).values() for known in (True, False))
        assert (won.result, task.result) == ("win", None) and won.success and task.success
        declared = episode({"a": 2.0, "b": 1.0}, zero_sum=False)
        assert outcomes(declared, contest=True)["a"].result is None, "the record counts before the caller"

    def test_are_contests_if_the_returns_of_two_agents_cancel(self) -> None:
        assert contest_of([episode({"a": 1.0, "b": -1.0}), episode({"a": 0.0, "b": 0.0})])
        assert not contest_of([episode({"a": 1.0, "b": -1.0}), episode({"a": 1.0, "b": 1.0})])
        assert not contest_of([episode({"a": 0.0, "b": 0.0})] * 30), "thirty dialogues that nobody solved"
        assert not contest_of([episode({"a": 0.0})]) and not contest_of([])
        assert not contest_of([episode({"a": 2.0, "b": -1.0, "c": -1.0})])

    def test_a_declaration_counts_before_the_returns(self) -> None:
        assert contest_of([episode({"a": 1.0, "b": 1.0}, zero_sum=True)])
        assert not contest_of([episode({"a": 1.0, "b": -1.0}, zero_sum=False)])

    def test_failed_episodes_do_not_count(self) -> None:
        broken = episode({"a": 1.0, "b": 0.0}, error=EpisodeError("env", "RuntimeError", "broken"), ending="error")
        assert contest_of([episode({"a": 1.0, "b": -1.0}), broken])

    def test_have_the_same_successes_either_way(self) -> None:
        for returns in ({"a": 1.0, "b": -1.0}, {"a": 0.0, "b": 0.0}, {"a": -0.5, "b": 0.5}):
            counted = [[one.success for one in judge(returns, {}, contest=known).values()] for known in (True, False)]
            assert counted[0] == counted[1]


def test_an_outcome_is_plain_data() -> None:
    outcome = Outcome("a", 1.0, True, "win", "", 2)
    assert '"return":1.0' in to_json(outcome) and from_json(to_json(outcome), Outcome) == outcome
