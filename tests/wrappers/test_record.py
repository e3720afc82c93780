"""RecordEpisodes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import marl_gem
from marl_gem import MultiAgentEnv, Role
from marl_gem.errors import ConfigError, EpisodeOver, InvalidAction, InvalidOption, RecordError, ScenarioFault
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.types import Episode, from_json, to_json
from marl_gem.wrappers import (
    EpisodeStatistics,
    RecordEpisodes,
    ShowHistory,
    StepPenalty,
    TimeLimit,
)
from tests.toys import one_agent
from tests.wrappers.wrapped import (
    WRONG,
    Inn,
    every_env,
    say,
)


def recorded(path: Path) -> list[Episode]:
    return [from_json(line, Episode) for line in path.read_text("ascii").splitlines()]


def unlike_a_rollout(episode: Episode) -> Episode:
    """Without what a loop cannot know."""
    return msgspec.structs.replace(episode, id="", seconds=0.0, models={}, cost=None)


@every_env
def test_what_is_recorded_is_what_a_rollout_gives(make: Callable[[], MultiAgentEnv], tmp_path: Path) -> None:
    def texts(observation: Any, info: Any) -> str:
        dice = random.Random(ascii(observation))
        return dice.choice([*info.get("legal_actions", []), "tip ann", "leave", "invite dan", "\ud800", "3"])

    def wrapped() -> MultiAgentEnv:
        return RecordEpisodes(EpisodeStatistics(StepPenalty(make(), 0.5)), tmp_path / "games.jsonl")

    episodes = collect(wrapped, [Job(seed, ScriptedPolicy(texts)) for seed in range(8)], concurrency=1)
    assert not any(episode.error for episode in episodes)
    found = recorded(tmp_path / "games.jsonl")
    assert [*map(unlike_a_rollout, found)] == [*map(unlike_a_rollout, episodes)]
    assert [episode.id for episode in found] == [f"{seed}-{seed}" for seed in range(8)]
    assert all(episode.roles.keys() == {turn.agent for turn in episode.turns} for episode in found)
    assert all(from_json(to_json(episode), Episode) == episode for episode in found)


def test_a_record_says_whether_the_scenario_is_a_contest(tmp_path: Path) -> None:
    for make in (lambda: marl_gem.make("game:KuhnPoker-v0"), Inn):
        env = RecordEpisodes(make(), tmp_path)
        env.reset(seed=0)
        while not env.done:
            env.step(dict.fromkeys(env.acting, "leave"))
    contest, inn = recorded(tmp_path / "episodes.jsonl")
    assert contest.zero_sum is True and inn.zero_sum is None


def test_one_that_is_broken_off_is_recorded_as_truncated(tmp_path: Path) -> None:
    env = RecordEpisodes(Inn(), tmp_path)
    for seed in range(2):
        env.reset(seed=7)  # where nobody has acted there is nothing to record
        env.reset(seed=seed, options={"inn": "Swan"})
        say(env, "3", "leave", "tip bob")
    assert len(recorded(tmp_path / "episodes.jsonl")) == 1
    env.close()
    env.close()
    first, second = recorded(tmp_path / "episodes.jsonl")
    assert (first.ending, first.error, first.seed, second.seed) == ("truncated", None, 0, 1)
    assert first.returns == {"ann": 3.0, "bob": 2.0, "cat": 0.0} and first.options == {"inn": "Swan"}
    assert [(turn.agent, turn.reward) for turn in first.turns] == [("ann", 3.0), ("bob", 2.0), ("cat", 0.0)]
    assert [*first.final_infos] == ["bob"]
    with pytest.raises(ConfigError):
        TimeLimit(env, 3)


def test_one_that_was_cut_and_one_that_failed(tmp_path: Path) -> None:
    env = RecordEpisodes(TimeLimit(Inn(), 2), tmp_path)
    env.reset(seed=1)
    say(env, "3", "3")
    env.reset(seed=2)
    say(env, "4")
    with pytest.raises(ScenarioFault):
        say(env, "break it")
    with pytest.raises(EpisodeOver):
        say(env, "hello")
    env.close()
    cut, failed = recorded(tmp_path / "episodes.jsonl")
    assert (cut.ending, failed.ending, failed.returns) == ("truncated", "error", {"ann": 4.0, "bob": 0.0, "cat": 0.0})
    assert failed.error and (failed.error.origin, failed.error.type) == ("env", "ScenarioFault")
    assert "a window" in failed.error.message
    assert [turn.response.text for turn in failed.turns] == ["4", "break it"]


def test_what_is_refused_is_not_recorded(tmp_path: Path) -> None:
    env = RecordEpisodes(TimeLimit(Inn(), 2), tmp_path)
    env.reset(seed=1)
    for wrong in WRONG:
        with pytest.raises(InvalidAction):
            env.step(wrong(env.acting))
    with pytest.raises(InvalidOption):
        env.reset(seed="7")  # type: ignore[arg-type]
    say(env, "3", "3")
    with pytest.raises(EpisodeOver):
        say(env, "3")
    (episode,) = recorded(tmp_path / "episodes.jsonl")
    assert len(episode.turns) == 2 and not episode.error


def test_what_agents_were_told_before_their_first_turns_is_recorded(tmp_path: Path) -> None:
    class Briefed(Inn):
        def role(self, agent: str) -> Role:
            return Role(f"{agent} comes in step {self.steps}.")

    env = ShowHistory(RecordEpisodes(TimeLimit(Briefed(), 4), tmp_path))
    env.reset(seed=1)
    say(env, "banish bob")
    with pytest.raises(InvalidAction):
        env.step({"cat": 3})  # type: ignore[dict-item]
    say(env, "invite dan")
    env.close()
    (episode,) = recorded(tmp_path / "episodes.jsonl")
    assert episode.roles == {"ann": Role("ann comes in step 0."), "cat": Role("cat comes in step 1.")}


@pytest.mark.parametrize("wrong", [RuntimeError("no words"), "You are a guest."], ids=repr)
def test_a_role_that_cannot_be_told_ends_the_episode(tmp_path: Path, wrong: Any) -> None:
    class Speechless(Inn):
        def role(self, agent: str) -> Any:
            if agent == "ann":
                return super().role(agent)
            if isinstance(wrong, Exception):
                raise wrong
            return wrong

    env = RecordEpisodes(Speechless(), tmp_path)
    env.reset(seed=1)
    say(env, "3")
    with pytest.raises(ScenarioFault, match=r"no words|gave 'You are a guest.'"):
        say(env, "4")
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "4")
    (episode,) = recorded(tmp_path / "episodes.jsonl")
    assert episode.error and (episode.error.origin, episode.error.type) == ("env", "ScenarioFault")
    assert [turn.response.text for turn in episode.turns] == ["3", "4"] and set(episode.roles) == {"ann"}


def test_what_a_view_further_outside_shows_is_not_recorded(tmp_path: Path) -> None:
    env = ShowHistory(RecordEpisodes(TimeLimit(Inn(), 4), tmp_path))
    env.reset(seed=1)
    say(env, "leave", "3", "3", "3")
    (episode,) = recorded(tmp_path / "episodes.jsonl")
    observations = [turn.observation for turn in episode.turns]
    observations += [info["final_observation"] for info in episode.final_infos.values()]
    assert len(observations) == 7
    assert all(isinstance(text, str) and " hears: " in text and "\n" not in text for text in observations)


def test_a_fork_records_nothing(tmp_path: Path) -> None:
    env = RecordEpisodes(TimeLimit(Inn(), 2), tmp_path)
    env.reset(seed=1)
    say(env, "3")
    twin = env.fork()
    say(twin, "9")
    twin.reset(seed=2)
    say(twin, "9", "9")
    twin.close()
    assert recorded(tmp_path / "episodes.jsonl") == []
    say(env, "4")
    (episode,) = recorded(tmp_path / "episodes.jsonl")
    assert [turn.response.text for turn in episode.turns] == ["3", "4"]


def test_a_file_is_added_to_also_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "games.jsonl"
    for seed in range(2):
        env = RecordEpisodes(TimeLimit(Inn(), 1), str(path))
        env.reset(seed=seed)
        say(env, "\ud800")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    for env in (RecordEpisodes(TimeLimit(Inn(), 1), path), RecordEpisodes(TimeLimit(Inn(), 1), path)):
        env.reset(seed=2)
        say(env, "3")
    lines = path.read_text("ascii").splitlines()
    assert [from_json(line, Episode).seed for line in (lines[0], *lines[2:])] == [0, 2, 2]


def test_recorders_in_threads_share_a_file(tmp_path: Path) -> None:
    def work() -> None:
        env = RecordEpisodes(TimeLimit(Inn(), 2), tmp_path)
        for seed in range(10):
            env.reset(seed=seed)
            say(env, "x" * 20_000, "3")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(episode.seed for episode in recorded(tmp_path / "episodes.jsonl")) == sorted([*range(10)] * 4)


def test_a_path_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"episodes cannot be written to .*file.*Give RecordEpisodes another path"):
        RecordEpisodes(Inn(), tmp_path / "file" / "episodes.jsonl")
    (tmp_path / "full.jsonl").symlink_to("/dev/full")
    env = RecordEpisodes(TimeLimit(Inn(), 1), tmp_path / "full.jsonl")
    env.reset()
    with pytest.raises(RecordError, match="No space left"):
        say(env, "3")
    env.reset()


def test_infos_that_are_no_plain_data_are_the_failure_of_their_step(tmp_path: Path) -> None:
    env = RecordEpisodes(one_agent(_process_actions=lambda self, actions: self.infos["a"].update(x={1})), tmp_path)
    env.reset(seed=3)
    with pytest.raises(RecordError, match=r"infos\['a'\]\['x'\] is a set, not plain data"):
        say(env, "hello")
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "hello")
    env.reset()
    assert env.acting == ("a",)
    (episode,) = recorded(tmp_path / "episodes.jsonl")
    assert episode.seed == 3 and episode.error and episode.error.type == "RecordError"


def test_an_observation_that_is_no_text_is_the_failure_of_its_reset(tmp_path: Path) -> None:
    env = RecordEpisodes(one_agent(observe=lambda self, agent: 7), tmp_path)
    with pytest.raises(RecordError, match=r"observations\['a'\] is 7; an observation is text or a list"):
        env.reset()
    with pytest.raises(EpisodeOver):
        say(env, "hello")
