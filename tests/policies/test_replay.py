"""Recorded runs as policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marl_gem.errors import RecordError
from marl_gem.policies import ScriptedPolicy
from marl_gem.policies.replay import ReplayPolicy
from marl_gem.rollout import Job, collect
from marl_gem.types import Episode, Role, to_json
from tests.fake_server import serving
from tests.policy_texts import load
from tests.toys import Chat


def talking(jobs: Any, tmp_path: Path) -> tuple[list[Episode], Path]:
    """Some recorded episodes of `Chat`, and their file."""
    episodes = collect(Chat, jobs)
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    write(folder / "episodes.jsonl", episodes)
    return episodes, folder


def write(file: Path, episodes: Any) -> None:
    file.write_text("".join(f"{to_json(episode)}\n" for episode in episodes), "utf-8")


class Babble:
    """Says something else in every seat, episode and turn."""

    name = "babble"

    def agent(self, agent_id: str, role: Role, seed: int) -> Any:
        turns = iter(range(100))
        return ScriptedPolicy(lambda observation, info: f"{agent_id} {seed} {next(turns)}\ud800").agent("", role, 0)


def test_a_replay_says_what_was_said(tmp_path: Path) -> None:
    jobs = [Job(seed, Babble(), f"{seed}.{repeat}", repeat=repeat) for seed in range(3) for repeat in range(2)]
    episodes, folder = talking(jobs, tmp_path)
    for path in (folder, folder / "episodes.jsonl"):
        replay = load(f"replay:{path}", "Chat")
        again = collect(Chat, [Job(job.seed, replay, job.id, repeat=job.repeat) for job in reversed(jobs)])
        assert [e.returns for e in again] == [e.returns for e in episodes]
        for first, second in zip(episodes, reversed(again), strict=True):
            assert [turn.response.text for turn in first.turns] == [turn.response.text for turn in second.turns]
            assert all(turn.response.cached for turn in second.turns)
    assert replay.name == f"replay:{folder / 'episodes.jsonl'}"


def test_one_seat_is_replayed_and_another_plays_anew(tmp_path: Path) -> None:
    same = ScriptedPolicy(lambda observation, info: "yes")
    episodes, folder = talking([Job(5, {"a": Babble(), "b": same})], tmp_path)
    (again,) = collect(Chat, [Job(5, {"a": ReplayPolicy(folder), "b": same})])
    assert [turn.response.text for turn in again.turns] == [turn.response.text for turn in episodes[0].turns]


def test_a_replay_keeps_what_an_answer_cost(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    with serving() as url:
        (first,), folder = talking([Job(1, load(f"tiny@{url},price=1/1"), "x")], tmp_path)
    (again,) = collect(Chat, [Job(1, ReplayPolicy(folder), "x")])
    assert first.cost and (again.cost, again.usage) == (first.cost, first.usage)
    assert [turn.response.token_ids for turn in again.turns] == [turn.response.token_ids for turn in first.turns]


def test_a_seed_or_a_seat_that_was_not_recorded(tmp_path: Path) -> None:
    _, folder = talking([Job(seed, Babble()) for seed in (5, 6)], tmp_path)
    for job in (Job(7, ReplayPolicy(folder)), Job(5, ReplayPolicy(folder), repeat=1)):
        (episode,) = collect(Chat, [job])
        assert episode.error is not None and episode.error.origin == "agent"
        assert "holds no turn of 'a' in an episode with this seed and repeat; it holds 2 seeds: 5, 6" in (
            episode.error.message
        )


def test_a_game_that_leaves_the_record_is_told(tmp_path: Path) -> None:
    _, folder = talking([Job(5, {"a": Babble(), "b": ScriptedPolicy(["yes", "yes", "yes"])})], tmp_path)
    (episode,) = collect(Chat, [Job(5, {"a": ReplayPolicy(folder), "b": ScriptedPolicy(["yes", "no"])})])
    assert episode.error is not None and len(episode.turns) == 4
    assert "in turn 3 it observed 'yes', and now 'no'" in episode.error.message


def test_where_long_observations_differ_is_shown(tmp_path: Path) -> None:
    long = "x" * 500
    script: dict[str, Any] = {"a": Babble(), "b": ScriptedPolicy([f"{long} one {long}"] * 3)}
    _, folder = talking([Job(5, script)], tmp_path)
    script = {"a": ReplayPolicy(folder), "b": ScriptedPolicy([f"{long} two {long}"] * 3)}
    (episode,) = collect(Chat, [Job(5, script)])
    assert episode.error and " one xxx" in episode.error.message and " two xxx" in episode.error.message
    assert len(episode.error.message) < 500


def test_a_record_that_ends_is_told_with_what_it_ended_in(tmp_path: Path) -> None:
    broken = {"a": ScriptedPolicy(["one"]), "b": ScriptedPolicy(["yes"] * 3)}
    (recorded,), folder = talking([Job(5, broken)], tmp_path)
    assert recorded.error
    (episode,) = collect(Chat, [Job(5, {"a": ReplayPolicy(folder), "b": ScriptedPolicy(["yes"] * 3)})])
    assert episode.error and "the record ends after 1 turns, where the episode broke off (AgentError: " in (
        episode.error.message
    )


def test_several_records_of_a_seed_are_told_apart_by_what_was_observed(tmp_path: Path) -> None:
    """As in a tournament, whose pairs play the same tasks."""
    jobs = [
        Job(5, {"a": ScriptedPolicy(["hi", f"{answer} too", "bye"]), "b": ScriptedPolicy([answer] * 3)}, answer)
        for answer in ("yes", "no")
    ]
    episodes, folder = talking(jobs, tmp_path)
    for episode, answer in zip(episodes, ("yes", "no"), strict=True):
        (again,) = collect(Chat, [Job(5, {"a": ReplayPolicy(folder), "b": ScriptedPolicy([answer] * 3)})])
        assert [turn.response.text for turn in again.turns] == [turn.response.text for turn in episode.turns]


def test_records_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    jobs = [Job(5, ScriptedPolicy([text] * 3), text) for text in ("one", "two")]
    _, folder = talking(jobs, tmp_path)
    (again,) = collect(Chat, [Job(5, ReplayPolicy(folder))])
    assert again.error and "holds 2 episodes in which 'a' had this seed and saw the same" in again.error.message


@pytest.mark.parametrize("cut_at", [1, 100, -1])
def test_a_torn_last_line_is_left_out(tmp_path: Path, cut_at: int) -> None:
    episodes, folder = talking([Job(seed, Babble()) for seed in (5, 6)], tmp_path)
    first, last = (f"{to_json(episode)}\n".encode() for episode in episodes)
    (folder / "episodes.jsonl").write_bytes(first + last[:cut_at])
    replay = ReplayPolicy(folder)
    assert not collect(Chat, [Job(5, replay)])[0].error
    assert collect(Chat, [Job(6, replay)])[0].error


def test_a_broken_line_is_told_with_its_number(tmp_path: Path) -> None:
    episodes, folder = talking([Job(seed, Babble()) for seed in (5, 6)], tmp_path)
    for broken in (b"{\n", b"\xff\n", b'{"id": 1}\n', b"\n"):
        (folder / "episodes.jsonl").write_bytes(f"{to_json(episodes[0])}\n".encode() + broken)
        with pytest.raises(RecordError, match=r"episodes\.jsonl, line 2: "):
            ReplayPolicy(folder)


def test_a_record_that_is_not_there_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(RecordError, match=r"cannot read a recorded run from .*: No such file"):
            load(f"replay:{path}")
