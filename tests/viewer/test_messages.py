"""What observations repeat, who heard a message, and why an episode failed."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.tools.calls import write_call
from marl_gem.types import EpisodeError, Response, Turn, from_json, to_json
from marl_gem.viewer.transcript import transcript
from tests.toys import SimultaneousNumbers
from tests.viewer.cases import failed_run, village
from tests.viewer.recorded import episode, opened


def talk(*lines: tuple[str, str, str]) -> list[list[tuple[str, int, str]]]:
    """Of each turn (agent, observation, response): the name, the turn and the text of each part of its observation."""
    turns = tuple(Turn(agent, seen, Response(text)) for agent, seen, text in lines)
    shown = transcript(episode(0, turns=turns, final_infos={})).turns
    return [[(part.name, part.turn, part.text) for part in turn.observation] for turn in shown]


def test_an_observation_that_quotes_others_is_recognized_line_by_line() -> None:
    _, second, third, fourth = talk(
        ("player_1", "[GAME] Begin.", "[4]"),
        ("player_10", "[Player 1] [4]", "Two lines,\nnothing more."),
        ("cleo", "[GAME] Day.\n[Player 1] [4]\n[Player 10] Two lines,\nnothing more.", "hm"),
        ("player_1", "Two lines,\nnothing more.\n[4] is on the board", "[5]"),
    )
    assert second == [("player_1", 1, "[4]")]
    assert third == [("", 0, "[GAME] Day.\n"), ("player_1", 1, "[4]"), ("player_10", 2, "Two lines,\nnothing more.")]
    assert fourth == [("player_10", 2, "Two lines,\nnothing more."), ("", 0, "[4] is on the board")]


@pytest.mark.parametrize("seen", ["Your card: K", "[Player 11] K", "K is high", "1\nK\n2", "ann: K K", "bob: K"])
def test_a_short_word_is_no_message_unless_a_label_names_its_sender(seen: str) -> None:
    assert talk(("player_1", "?", "K"), ("bob", seen, "x"))[1] == [("", 0, seen)]


def test_a_message_is_heard_once_by_each_agent_and_never_by_its_author() -> None:
    lines = [("ann", "Talk.", "hello"), ("bob", "ann: hello", "hello")]
    log = "ann: hello\nbob: hello"
    turns = [
        *lines,
        ("ann", log, "bye"),
        ("cleo", f"{log}\nann: bye", "bye"),
        ("bob", f"{log}\nann: bye\ncleo: bye", "-"),
    ]
    shown = transcript(episode(0, turns=tuple(Turn(a, o, Response(r)) for a, o, r in turns), final_infos={}))
    assert [turn.heard for turn in shown.turns] == [["bob", "cleo"], ["ann", "cleo"], ["cleo", "bob"], ["bob"], []]
    assert [part.turn for part in shown.turns[4].observation] == [1, 2, 3, 4]


def test_reasoning_and_calls_are_no_part_of_the_message_that_is_heard() -> None:
    spoken = f"Here you are, a long answer.{write_call('look', {})}"
    seen = talk(("a", "?", f"<think>I know it.</think>{spoken}"), ("b", "Here you are, a long answer.", "Thanks."))
    assert seen[1] == [("a", 1, "Here you are, a long answer.")]


def test_a_long_text_that_all_are_shown_is_marked_the_second_time() -> None:
    rules = "[GAME] The rules are long. " * 5
    seen = talk(("a", f"{rules}\n[GAME] You are a wolf.", "x"), ("b", f"{rules}\n[GAME] You are a seer.", "y"))
    assert seen[0] == [("", 0, f"{rules}\n[GAME] You are a wolf.")]
    assert seen[1] == [("", 1, rules), ("", 0, "[GAME] You are a seer.")]


def test_agents_that_act_together_hear_nothing_of_each_other_before_the_next_step() -> None:
    shown = transcript(village(agents=10))
    assert {turn.step for turn in shown.turns[:10]} == {1} and {turn.step for turn in shown.turns[10:]} == {2}
    assert all(part.turn == 0 for turn in shown.turns[:10] for part in turn.observation)
    assert [part.turn for part in shown.turns[10].observation] == list(range(1, 11))
    assert all(len(turn.heard) == 9 for turn in shown.turns)
    assert set(shown.groups.values()) == {"wolves", "village"}


def test_the_step_of_agents_that_act_together_is_recorded() -> None:
    (played,) = collect(SimultaneousNumbers, [Job(0, ScriptedPolicy(lambda observation, info: "1"))])
    assert [turn.step for turn in played.turns] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert from_json(to_json(played), type(played)) == played
    assert "step" not in to_json(episode(0)), "of agents that act alone there is nothing to say"


def test_answers_are_those_of_the_calls_before_them() -> None:
    calls = write_call("a", {}) + write_call("b", {})
    results = [{"type": "tool_result", "name": name, "text": name} for name in ("a", "b", "c")]
    turns = (Turn("x", "?", Response(calls)), Turn("x", results, Response("done")))
    shown = transcript(episode(0, turns=turns, final_infos={}))
    assert [(part.name, part.turn) for part in shown.turns[1].observation] == [("a", 1), ("b", 1), ("c", 0)]
    other = (turns[0], Turn("y", "?", Response("-")), Turn("x", results[1:], Response("done")))
    shown = transcript(episode(0, turns=other, final_infos={"x": {"final_observation": results[:1]}}))
    assert [part.turn for part in shown.turns[2].observation] == [0, 0], "the names do not fit"
    assert [part.turn for part in shown.ends[0].observation] == [0], "its last response called nothing"


def test_why_an_episode_failed(tmp_path: Path) -> None:
    run = opened(failed_run(tmp_path / "run"))
    found = [
        [
            (reason.kind, reason.agents, reason.turn)
            for reason in transcript(run.read(entry), judged=entry.summary.outcomes).reasons
        ]
        for entry in run.entries()
        if entry.summary
    ]
    assert found[0] == [("failure", ["user", "assistant"], 0), ("illegal", ["assistant"], 2)]
    assert found[1] == [("error", ["assistant"], 0)] and found[3] == [("error", ["assistant"], 0)]
    assert found[2][0] == ("limit", [], 0)
    first = transcript(run.read(run.entries()[0])).reasons[0]
    assert first.checks == ["differences: orders #W7", "differences: users ann_1", "missing outputs: 154"]


def test_nothing_is_wrong_with_a_success_or_a_game_that_was_only_lost() -> None:
    assert transcript(episode()).reasons == transcript(episode(), "user").reasons
    assert [reason.agents for reason in transcript(episode()).reasons] == [["user"]]
    lost = episode(0, returns={"user": -1.0, "assistant": 1.0}, zero_sum=True, final_infos={})
    assert transcript(lost).reasons == []
    broken = msgspec.structs.replace(lost, error=EpisodeError("llm", "Down", "503"), ending="error")
    assert [reason.text for reason in transcript(broken).reasons] == ["Down in llm: 503"]


def test_long_logs_of_equal_messages_are_split_in_bounded_time() -> None:
    turns = [Turn(f"a{n % 50}", "\n".join(["hello"] * n), Response("hello")) for n in range(1500)]
    started = time.monotonic()
    shown = transcript(episode(0, turns=tuple(turns), final_infos={}))
    assert len(shown.turns) == 1500 and time.monotonic() - started < 20
