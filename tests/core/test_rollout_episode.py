"""One episode: its record, limits and rewards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import marl_gem
from marl_gem import (
    Episode,
    Metadata,
    MultiAgentEnv,
    Response,
    Role,
)
from marl_gem.errors import LLMError
from marl_gem.policies import RandomPolicy, ScriptedPolicy
from marl_gem.rollout import Job, collect, play_episode
from marl_gem.types import EpisodeError, Limits, from_json, to_json
from tests.core.rollout_scenarios import Blocking, Planned, ones, played, seats_of, timeless
from tests.toys import Failing, NumberGame

# One episode


def test_an_episode_in_full() -> None:
    (episode,) = collect(NumberGame, [Job(7, seats_of(a=ScriptedPolicy(["1", "x"]), b=ones))])
    turns = [("a", "1", 1.0), ("b", "1", 1.0), ("a", "x", 0.0), ("b", "1", 1.0)]
    assert [(turn.agent, turn.response.text, turn.reward) for turn in episode.turns] == turns
    assert [turn.observation for turn in episode.turns] == [f"step {step}" for step in range(4)]
    assert episode.turns[0].info == {"read": "1"}
    assert episode.final_infos["b"] == {"read": "1", "final_observation": "step 4"}
    assert episode.final_infos["a"] == {"final_observation": "step 4"}
    assert (episode.id, episode.scenario, episode.seed, episode.ending) == ("0", "NumberGame", 7, "terminated")
    assert (episode.returns, episode.models, episode.error) == (
        {"a": 1.0, "b": 2.0},
        dict.fromkeys("ab", "scripted"),
        None,
    )
    assert episode.seconds > 0


def test_an_episode_keeps_what_its_agents_were_told() -> None:
    (episode,) = collect(NumberGame, [Job(7, ones)])
    assert episode.roles == {"a": Role("You are a."), "b": Role("You are b.")}


@pytest.mark.parametrize("declared", [True, False, None])
def test_an_episode_says_whether_its_scenario_is_a_contest(declared: bool | None) -> None:
    class Declares(NumberGame):
        metadata = Metadata(zero_sum=declared)

    (episode,) = played(Declares, Job(0, ScriptedPolicy(lambda observation, info: "yes")))
    assert episode.zero_sum is declared
    assert from_json(to_json(episode), Episode) == episode


def test_who_is_never_asked_was_told_nothing() -> None:
    (episode,) = collect(lambda: Planned(({}, "b", "c"), ({}, "ac", "")), [Job(0, ones)])
    assert set(episode.roles) == {"a", "c"} and set(episode.returns) == {"a", "b", "c"}
    (cut,) = collect(NumberGame, [Job(0, ones, limits=Limits(turns=1))])
    assert set(cut.roles) == {"a"}
    (failed,) = collect(NumberGame, [Job(0, seats_of(a=ones, b=Failing(LLMError("too long"))))])
    assert [turn.agent for turn in failed.turns] == ["a"]
    assert failed.roles["b"] == Role("You are b."), "what it was asked with helps to see why it failed"


def test_a_role_is_what_was_told_before_the_first_turn() -> None:
    class Briefed(NumberGame):
        def role(self, agent: str) -> Role:
            return Role(f"It is step {self.steps}.")

    (episode,) = collect(Briefed, [Job(7, ones)])
    assert episode.roles == {"a": Role("It is step 0."), "b": Role("It is step 1.")}


def test_play_needs_no_stream() -> None:
    for kind in (NumberGame, type("BlockingOnce", (Blocking,), {"seconds": 0.0, "threads": set()})):
        episode = asyncio.run(play_episode(kind(), Job(7, ones, "mine")))
        assert (episode.id, episode.returns) == ("mine", {"a": 2.0, "b": 2.0})


def test_endings() -> None:
    def limited() -> MultiAgentEnv:
        env = NumberGame()
        env.max_steps = 3
        return env

    assert [episode.ending for episode in collect(limited, [Job(0, ones)])] == ["truncated"]
    assert [episode.ending for episode in collect(NumberGame, [Job(0, ones)])] == ["terminated"]
    assert [episode.ending for episode in collect(NumberGame, [Job(0, ScriptedPolicy(["break"]))])] == ["error"]


class Spends:
    """Answers `1` after a while, and says what that took."""

    name = "spends"

    def __init__(self, seconds: float = 0.0, cost: float | None = 0.25) -> None:
        self.seconds, self.cost = seconds, cost

    def agent(self, agent_id: str, role: Role, seed: int) -> Spends:
        return self

    async def act(self, observation: Any, info: Any) -> Response:
        await asyncio.sleep(self.seconds)
        return Response("1", usage={"prompt_tokens": 7, "completion_tokens": 3}, cost=self.cost)


@pytest.mark.parametrize(
    "make", [NumberGame, type("Slow", (Blocking,), {"seconds": 0, "threads": set()})], ids=["quick", "blocking"]
)
@pytest.mark.parametrize(
    ("limits", "limit", "turns"),
    [
        (Limits(), "", 4),
        (Limits(turns=5, tokens=50, cost=2.0, seconds=60), "", 4),
        (Limits(turns=4), "", 4),
        (Limits(turns=2), "turns", 2),
        (Limits(tokens=11), "tokens", 2),
        (Limits(cost=0.75), "cost", 3),
        (Limits(turns=3, tokens=1), "tokens", 1),
    ],
    ids=str,
)
def test_limits_cut_an_episode_short(make: Callable[[], MultiAgentEnv], limits: Limits, limit: str, turns: int) -> None:
    cut, whole = played(make, Job(0, Spends(), limits=limits), Job(1, Spends()), concurrency=1)
    assert (cut.limit, len(cut.turns), cut.error) == (limit, turns, None)
    assert cut.ending == ("truncated" if limit else "terminated")
    assert cut.usage == {"prompt_tokens": 7 * turns, "completion_tokens": 3 * turns}
    assert cut.cost == 0.25 * turns
    assert sum(cut.returns.values()) == sum(turn.reward for turn in cut.turns) == turns
    assert (whole.limit, len(whole.turns)) == ("", 4)  # the env that was left in the middle is used again


def test_a_limit_of_seconds_interrupts_an_agent() -> None:
    started = time.monotonic()
    slow, quick = collect(NumberGame, [Job(0, Spends(60), limits=Limits(seconds=0.05)), Job(1, Spends())])
    assert time.monotonic() - started < 30
    assert (slow.ending, slow.limit, slow.turns, slow.error) == ("truncated", "seconds", (), None)
    assert (quick.ending, quick.limit) == ("terminated", "")


def test_a_time_out_within_an_agent_is_the_agent_s_failure_and_no_limit() -> None:
    (episode,) = played(NumberGame, Job(0, Failing(TimeoutError("too late")), limits=Limits(seconds=60)))
    assert episode.limit == ""
    assert episode.error == EpisodeError("agent", "TimeoutError", "too late", "a")


def test_one_unknown_price_makes_the_cost_unknown() -> None:
    (episode,) = played(NumberGame, Job(0, seats_of(a=Spends(), b=Spends(cost=None)), limits=Limits(cost=0.5)))
    assert (episode.cost, episode.limit, len(episode.turns)) == (None, "cost", 3)


def test_a_seat_without_a_model_costs_nothing() -> None:
    mixed, free = collect(NumberGame, [Job(0, seats_of(a=Spends(), b=ones)), Job(1, ones)])
    assert (mixed.cost, free.cost) == (0.5, None)


def test_a_repeat_plays_the_same_task_with_other_random_choices() -> None:
    episodes = played(
        NumberGame, *(Job(3, RandomPolicy(), str(n), repeat=n) for n in range(6)), Job(3, RandomPolicy(), "x")
    )
    chosen = [tuple(turn.response.text for turn in episode.turns) for episode in episodes]
    assert chosen[0] == chosen[6]
    assert len(set(chosen)) > 2
    assert [episode.repeat for episode in episodes] == [0, 1, 2, 3, 4, 5, 0]
    assert {episode.seed for episode in episodes} == {3}


def test_options_reach_the_env() -> None:
    (episode,) = collect(NumberGame, [Job(0, ones, options={"weather": "rain"})])
    assert episode.error == EpisodeError(
        "env", "InvalidOption", "NumberGame takes no reset options, but got ['weather']"
    )
    assert (episode.turns, episode.returns) == ((), {})


def test_the_seed_decides_what_agents_draw() -> None:
    episodes = collect(NumberGame, [Job(seed, RandomPolicy()) for seed in [1, 1, 2, 3, 4]])
    said = [[turn.response.text for turn in episode.turns] for episode in episodes]
    assert said[0] == said[1]
    assert len({tuple(texts) for texts in said}) > 2
    assert any(texts[0::2] != texts[1::2] for texts in said), "each seat has a seed of its own"


@pytest.mark.parametrize("make", [NumberGame, lambda: marl_gem.make("game:KuhnPoker-v0")])
def test_same_seeds_same_episodes_whatever_the_concurrency(make: Callable[[], MultiAgentEnv]) -> None:
    jobs = [Job(seed, RandomPolicy()) for seed in range(30)]
    expected = [timeless(episode) for episode in collect(make, jobs, concurrency=1)]
    for concurrency in (2, 7, 64):
        assert [timeless(episode) for episode in collect(make, jobs, concurrency=concurrency)] == expected


# Rewards


def credited(*plan: tuple[dict[str, float], str, str]) -> tuple[list[tuple[str, float]], dict[str, float]]:
    (episode,) = collect(lambda: Planned(*plan), [Job(0, ScriptedPolicy(lambda observation, info: ""))])
    assert episode.error is None
    return [(turn.agent, turn.reward) for turn in episode.turns], episode.returns


def test_a_reward_that_comes_while_an_agent_waits_belongs_to_its_last_action() -> None:
    turns, returns = credited(({}, "", "b"), ({"a": 1, "b": 2}, "", "c"), ({"a": 4, "c": 8}, "abc", ""))
    assert turns == [("a", 5.0), ("b", 2.0), ("c", 8.0)]
    assert returns == {"a": 5.0, "b": 2.0, "c": 8.0}


def test_a_late_reward_after_an_elimination_belongs_to_the_last_action() -> None:
    turns, returns = credited(
        ({"a": 1}, "", "b"), ({}, "", "a"), ({"a": 2}, "a", "b"), ({"a": 4}, "", "c"), ({"a": 8, "c": 16}, "bc", "")
    )
    assert turns == [("a", 1.0), ("b", 0.0), ("a", 14.0), ("b", 0.0), ("c", 16.0)]
    assert returns == {"a": 15.0, "b": 0.0, "c": 16.0}


def test_a_reward_before_an_agent_s_first_action_counts_in_returns_alone() -> None:
    turns, returns = credited(({"b": 32}, "", "b"), ({"b": 1, "c": 64}, "bc", "a"), ({"b": 2, "c": 4}, "a", ""))
    assert turns == [("a", 0.0), ("b", 3.0), ("a", 0.0)]
    assert returns == {"a": 0.0, "b": 35.0, "c": 68.0}
