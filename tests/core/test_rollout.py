"""Playing episodes, one and many at once; who plays them; and how the play is judged."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

import marl_gem
from marl_gem import (
    DirectedSelector,
    Episode,
    Metadata,
    MultiAgentEnv,
    ParallelSelector,
    Response,
    Role,
    SequentialSelector,
    views,
)
from marl_gem.errors import AgentError, ConfigError, LLMError, MarlGemError
from marl_gem.llm import Sampling
from marl_gem.policies import HumanPolicy, LLMPolicy, RandomPolicy, ScriptedPolicy
from marl_gem.rollout import Job, collect, play_episode, stream
from marl_gem.seeding import derive_seed
from marl_gem.types import EpisodeError, Limits, from_json, to_json
from marl_gem.views import as_text

# The scenarios


class Count(MultiAgentEnv):
    """Agents act in turn, `length` steps in all; a text that is a number is the reward of whoever wrote it."""

    possible_agents = ("a", "b")
    selector = SequentialSelector()
    length = 4

    def observe(self, agent: str) -> str:
        return f"step {self.steps}"

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}.")

    def legal_actions(self, agent: str) -> list[str]:
        return ["1", "2", "3"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            if text == "break":
                raise RuntimeError("broken")
            self.rewards[agent] = float(text) if text.isdigit() else 0.0
            self.infos[agent]["read"] = text
        self.terminations = dict.fromkeys(self.agents, self.steps >= self.length)


class CountTogether(Count):
    selector = ParallelSelector()


class Told(MultiAgentEnv):
    """Does what its plan says: a list of (rewards, who ends, who acts next), one for each step."""

    possible_agents = ("a", "b", "c")
    selector = DirectedSelector()

    def __init__(self, *plan: tuple[dict[str, float], str, str]) -> None:
        self.plan = plan

    def observe(self, agent: str) -> str:
        return f"step {self.steps}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        rewards, ends, following = self.plan[self.steps - 1]
        self.rewards = dict(rewards)
        self.terminations |= dict.fromkeys(ends, True)
        self.selector.direct(*following)


class Blocking(Count):
    """Every step takes a while outside Python, and counts how many do so at the same time."""

    blocking = True
    seconds = 0.05
    lock = threading.Lock()
    inside = most = 0
    threads: ClassVar[set[str]]

    def _process_actions(self, actions: dict[str, str]) -> None:
        kind = type(self)
        with self.lock:
            kind.inside += 1
            kind.most = max(kind.most, kind.inside)
            kind.threads.add(threading.current_thread().name)
        time.sleep(self.seconds)
        with self.lock:
            kind.inside -= 1
        super()._process_actions(actions)


# The policies

ones = ScriptedPolicy(lambda observation, info: "1")


class Waits:
    """Answers after some seconds: as many as `seconds` says of the agent's seed or, in a dict, of its id."""

    name = "waits"

    def __init__(self, seconds: Callable[[str], float], text: str = "1") -> None:
        self.seconds, self.text = seconds, text

    def agent(self, agent_id: str, role: Role, seed: int) -> Waits:
        return Waits(lambda _: self.seconds(agent_id), self.text)

    async def act(self, observation: Any, info: Any) -> Response:
        await asyncio.sleep(self.seconds(""))
        return Response(self.text)


class Fails:
    """Raises, or answers with, whatever it is given."""

    name = "fails"

    def __init__(self, how: Any) -> None:
        self.how = how

    def agent(self, agent_id: str, role: Role, seed: int) -> Fails:
        return self

    async def act(self, observation: Any, info: Any) -> Any:
        if isinstance(self.how, BaseException):
            raise self.how
        return self.how


class ScriptedLLM:
    """A model that answers with numbers from its seed and remembers what it was shown."""

    name = "scripted model@3"

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], Sampling, int]] = []

    async def complete(self, messages: Sequence[Any], sampling: Sampling, seed: int, tools: Any = ()) -> Response:
        self.asked.append((list(messages), sampling, seed))
        await asyncio.sleep(0)
        number = len(self.asked)
        return Response(str(seed % 10), (1, 2), (number, 9), (-0.5, -0.1), version=3, usage={"prompt_tokens": 2})


def seats_of(**policies: Any) -> dict[str, Any]:
    return policies


async def gather(episodes: AsyncGenerator[Episode, None]) -> list[Episode]:
    return [episode async for episode in episodes]


def played(make: Callable[[], MultiAgentEnv], *jobs: Job, concurrency: int = 64) -> list[Episode]:
    """The episodes in the order in which they finished."""
    return asyncio.run(gather(stream(make, jobs, concurrency=concurrency)))


def timeless(episode: Episode) -> Episode:
    return msgspec.structs.replace(episode, seconds=0.0)


# One episode


def test_an_episode_in_full() -> None:
    (episode,) = collect(Count, [Job(7, seats_of(a=ScriptedPolicy(["1", "x"]), b=ones))])
    turns = [("a", "1", 1.0), ("b", "1", 1.0), ("a", "x", 0.0), ("b", "1", 1.0)]
    assert [(turn.agent, turn.response.text, turn.reward) for turn in episode.turns] == turns
    assert [turn.observation for turn in episode.turns] == [f"step {step}" for step in range(4)]
    assert episode.turns[0].info == {"read": "1"}
    assert episode.final_infos["b"] == {"read": "1", "final_observation": "step 4"}
    assert episode.final_infos["a"] == {"final_observation": "step 4"}
    assert (episode.id, episode.scenario, episode.seed, episode.ending) == ("0", "Count", 7, "terminated")
    assert (episode.returns, episode.models, episode.error) == (
        {"a": 1.0, "b": 2.0},
        dict.fromkeys("ab", "scripted"),
        None,
    )
    assert episode.seconds > 0


def test_an_episode_keeps_what_its_agents_were_told() -> None:
    (episode,) = collect(Count, [Job(7, ones)])
    assert episode.roles == {"a": Role("You are a."), "b": Role("You are b.")}


@pytest.mark.parametrize("declared", [True, False, None])
def test_an_episode_says_whether_its_scenario_is_a_contest(declared: bool | None) -> None:
    class Declares(Count):
        metadata = Metadata(zero_sum=declared)

    (episode,) = played(Declares, Job(0, ScriptedPolicy(lambda observation, info: "yes")))
    assert episode.zero_sum is declared
    assert from_json(to_json(episode), Episode) == episode


def test_who_is_never_asked_was_told_nothing() -> None:
    (episode,) = collect(lambda: Told(({}, "b", "c"), ({}, "ac", "")), [Job(0, ones)])
    assert set(episode.roles) == {"a", "c"} and set(episode.returns) == {"a", "b", "c"}
    (cut,) = collect(Count, [Job(0, ones, limits=Limits(turns=1))])
    assert set(cut.roles) == {"a"}
    (failed,) = collect(Count, [Job(0, seats_of(a=ones, b=Fails(LLMError("too long"))))])
    assert [turn.agent for turn in failed.turns] == ["a"]
    assert failed.roles["b"] == Role("You are b."), "what it was asked with helps to see why it failed"


def test_a_role_is_what_was_told_before_the_first_turn() -> None:
    class Briefed(Count):
        def role(self, agent: str) -> Role:
            return Role(f"It is step {self.steps}.")

    (episode,) = collect(Briefed, [Job(7, ones)])
    assert episode.roles == {"a": Role("It is step 0."), "b": Role("It is step 1.")}


def test_play_needs_no_stream() -> None:
    for kind in (Count, type("BlockingOnce", (Blocking,), {"seconds": 0.0, "threads": set()})):
        episode = asyncio.run(play_episode(kind(), Job(7, ones, "mine")))
        assert (episode.id, episode.returns) == ("mine", {"a": 2.0, "b": 2.0})


def test_endings() -> None:
    def limited() -> MultiAgentEnv:
        env = Count()
        env.max_steps = 3
        return env

    assert [episode.ending for episode in collect(limited, [Job(0, ones)])] == ["truncated"]
    assert [episode.ending for episode in collect(Count, [Job(0, ones)])] == ["terminated"]
    assert [episode.ending for episode in collect(Count, [Job(0, ScriptedPolicy(["break"]))])] == ["error"]


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
    "make", [Count, type("Slow", (Blocking,), {"seconds": 0, "threads": set()})], ids=["quick", "blocking"]
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
    slow, quick = collect(Count, [Job(0, Spends(60), limits=Limits(seconds=0.05)), Job(1, Spends())])
    assert time.monotonic() - started < 30
    assert (slow.ending, slow.limit, slow.turns, slow.error) == ("truncated", "seconds", (), None)
    assert (quick.ending, quick.limit) == ("terminated", "")


def test_a_time_out_within_an_agent_is_the_agent_s_failure_and_no_limit() -> None:
    (episode,) = played(Count, Job(0, Fails(TimeoutError("too late")), limits=Limits(seconds=60)))
    assert episode.limit == ""
    assert episode.error == EpisodeError("agent", "TimeoutError", "too late", "a")


def test_one_unknown_price_makes_the_cost_unknown() -> None:
    (episode,) = played(Count, Job(0, seats_of(a=Spends(), b=Spends(cost=None)), limits=Limits(cost=0.5)))
    assert (episode.cost, episode.limit, len(episode.turns)) == (None, "cost", 3)


def test_a_seat_without_a_model_costs_nothing() -> None:
    mixed, free = collect(Count, [Job(0, seats_of(a=Spends(), b=ones)), Job(1, ones)])
    assert (mixed.cost, free.cost) == (0.5, None)


def test_a_repeat_plays_the_same_task_with_other_random_choices() -> None:
    episodes = played(Count, *(Job(3, RandomPolicy(), str(n), repeat=n) for n in range(6)), Job(3, RandomPolicy(), "x"))
    chosen = [tuple(turn.response.text for turn in episode.turns) for episode in episodes]
    assert chosen[0] == chosen[6]
    assert len(set(chosen)) > 2
    assert [episode.repeat for episode in episodes] == [0, 1, 2, 3, 4, 5, 0]
    assert {episode.seed for episode in episodes} == {3}


def test_options_reach_the_env() -> None:
    (episode,) = collect(Count, [Job(0, ones, options={"weather": "rain"})])
    assert episode.error == EpisodeError("env", "InvalidOption", "Count takes no reset options, but got ['weather']")
    assert (episode.turns, episode.returns) == ((), {})


def test_the_seed_decides_what_agents_draw() -> None:
    episodes = collect(Count, [Job(seed, RandomPolicy()) for seed in [1, 1, 2, 3, 4]])
    said = [[turn.response.text for turn in episode.turns] for episode in episodes]
    assert said[0] == said[1]
    assert len({tuple(texts) for texts in said}) > 2
    assert any(texts[0::2] != texts[1::2] for texts in said), "each seat has a seed of its own"


@pytest.mark.parametrize("make", [Count, lambda: marl_gem.make("game:KuhnPoker-v0")])
def test_same_seeds_same_episodes_whatever_the_concurrency(make: Callable[[], MultiAgentEnv]) -> None:
    jobs = [Job(seed, RandomPolicy()) for seed in range(30)]
    expected = [timeless(episode) for episode in collect(make, jobs, concurrency=1)]
    for concurrency in (2, 7, 64):
        assert [timeless(episode) for episode in collect(make, jobs, concurrency=concurrency)] == expected


# Rewards


def credited(*plan: tuple[dict[str, float], str, str]) -> tuple[list[tuple[str, float]], dict[str, float]]:
    (episode,) = collect(lambda: Told(*plan), [Job(0, ScriptedPolicy(lambda observation, info: ""))])
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


# Many episodes


def test_collect_answers_in_the_order_of_the_jobs() -> None:
    slow_first = [Job(seed, Waits(lambda _, s=seed: 0.01 * (5 - s))) for seed in range(5)]
    assert [episode.seed for episode in collect(Count, slow_first)] == [0, 1, 2, 3, 4]
    assert [episode.seed for episode in played(Count, *slow_first)] == [4, 3, 2, 1, 0]


def test_a_fast_episode_is_yielded_while_a_slow_one_goes_on() -> None:
    async def first() -> tuple[Episode, float]:
        started = time.monotonic()
        episodes = stream(Count, [Job(0, Waits(lambda _: 30)), Job(1, ones)])
        episode = await anext(episodes)
        await episodes.aclose()
        return episode, time.monotonic() - started

    episode, seconds = asyncio.run(first())
    assert episode.seed == 1 and seconds < 5


def test_jobs_are_taken_one_by_one_so_there_may_be_any_number() -> None:
    taken = []

    def endless() -> Iterator[Job]:
        while True:
            taken.append(len(taken))
            yield Job(len(taken), ones)

    async def some() -> list[int]:
        episodes = stream(Count, endless(), concurrency=3)
        seeds = [(await anext(episodes)).seed for _ in range(10)]
        await episodes.aclose()
        return seeds

    assert sorted(asyncio.run(some())) == list(range(1, 11))
    assert len(taken) < 20


def test_there_are_as_many_envs_as_live_episodes_and_all_are_closed() -> None:
    made, closed = [], []

    class Closes(Count):
        def close(self) -> None:
            closed.append(self)

    def make() -> MultiAgentEnv:
        made.append(Closes())
        return made[-1]

    episodes = collect(make, [Job(seed, Waits(lambda _: 0.001)) for seed in range(20)], concurrency=4)
    assert len(episodes) == 20 and all(episode.returns == {"a": 2.0, "b": 2.0} for episode in episodes)
    assert len(made) == 4 and closed and set(map(id, closed)) == set(map(id, made))


def test_ids() -> None:
    assert [episode.id for episode in collect(Count, [Job(5, ones), Job(5, ones, "x"), Job(5, ones)])] == [
        "0",
        "x",
        "2",
    ]
    with pytest.raises(ValueError, match="same id"):
        collect(Count, [Job(5, ones, "x"), Job(6, ones, "x")])
    assert collect(Count, []) == []


@pytest.mark.parametrize("concurrency", [0, -1])
def test_concurrency_below_one(concurrency: int) -> None:
    with pytest.raises(ValueError, match="from 1 up"):
        collect(Count, [Job(0, ones)], concurrency=concurrency)


def test_acting_agents_answer_at_the_same_time() -> None:
    """Each waits until the other has been asked: one after the other, they would wait for ever."""
    asked = {"a": asyncio.Event(), "b": asyncio.Event()}

    class Meets:
        name = "meets"

        def agent(self, agent_id: str, role: Role, seed: int) -> Meets:
            self.events = asked[agent_id], asked["b" if agent_id == "a" else "a"]
            meets = Meets()
            meets.events = self.events
            return meets

        async def act(self, observation: Any, info: Any) -> Response:
            mine, other = self.events
            mine.set()
            await asyncio.wait_for(other.wait(), 5)
            return Response("1")

    (episode,) = collect(CountTogether, [Job(0, Meets())])
    assert episode.error is None and len(episode.turns) == 8


# What goes wrong


NEIGHBOURS = 3


def beside(make: Callable[[], MultiAgentEnv], seating: Any, seed: int = 0) -> EpisodeError:
    """The error of an episode; its neighbours, played before, beside and after it, are well."""
    for concurrency in (1, 2, 9):
        good = [Job(seed, seats_of(a=ones, b=ones)) for seed in range(NEIGHBOURS)]
        episodes = collect(make, [*good, Job(seed, seating), *good], concurrency=concurrency)
        bad = episodes.pop(NEIGHBOURS)
        assert [episode.error for episode in episodes] == [None] * 2 * NEIGHBOURS
        assert all(episode.returns == {"a": 2.0, "b": 2.0} for episode in episodes)
        assert bad.ending == "error" and bad.error
    return bad.error


def test_an_env_that_fails() -> None:
    error = beside(Count, seats_of(a=ScriptedPolicy(["1", "break"]), b=ones))
    assert (error.origin, error.type, error.agent) == ("env", "ScenarioFault", None)
    assert "_process_actions raised RuntimeError at step 3" in error.message and "broken" in error.message


def test_an_env_that_fails_keeps_the_turns_before() -> None:
    (episode,) = collect(Count, [Job(0, seats_of(a=ScriptedPolicy(["3", "break"]), b=ones))])
    assert [turn.response.text for turn in episode.turns] == ["3", "1", "break"]
    assert episode.returns == {"a": 3.0, "b": 1.0}


@pytest.mark.parametrize("in_a_thread", [True, False])
def test_an_env_that_fails_in_its_step_or_ends_the_program(in_a_thread: bool) -> None:
    for kind in (RuntimeError, StopIteration, SystemExit, KeyboardInterrupt):

        class Breaks(Count):
            blocking = in_a_thread

            def step(self, actions: Any, kind: Any = kind) -> Any:
                if "break" in actions.values():
                    raise kind("broken")
                return super().step(actions)

        if kind is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                collect(Breaks, [Job(0, ScriptedPolicy(["break"]))])
        else:
            assert beside(Breaks, ScriptedPolicy(["break"])).origin == "env"


def test_an_env_that_failed_is_closed_and_not_used_again() -> None:
    made, closed, used = [], [], []

    class Watched(Count):
        def reset(self, *arguments: Any, **options: Any) -> Any:
            used.append(self)
            return super().reset(*arguments, **options)

        def close(self) -> None:
            closed.append(self)

    def make() -> MultiAgentEnv:
        made.append(Watched())
        return made[-1]

    collect(make, [Job(0, ones), Job(0, ScriptedPolicy(["break"])), Job(0, ones), Job(0, ones)], concurrency=1)
    first, second = made
    assert used == [first, first, second, second] and closed == [first, second]


def test_a_role_that_cannot_be_told_is_the_env_s_failure() -> None:
    class Speechless(Count):
        def role(self, agent: str) -> Role:
            raise RuntimeError("no words")

    (episode,) = collect(Speechless, [Job(0, ones)])
    assert episode.error == EpisodeError("env", "RuntimeError", "no words", "a")
    assert (episode.roles, episode.turns) == ({}, ())


def test_what_is_no_role_is_the_env_s_failure() -> None:
    class Tells(Count):
        def role(self, agent: str) -> Any:
            return f"You are {agent}."

    (episode,) = collect(Tells, [Job(0, ones)])
    message = "role('a') gave 'You are a.'; it must give a Role"
    assert episode.error == EpisodeError("env", "ScenarioFault", message, "a")
    assert from_json(to_json(episode), Episode) == episode


@pytest.mark.parametrize(
    ("how", "origin", "kind"),
    [
        (RuntimeError("no idea"), "agent", "RuntimeError"),
        (AgentError("no idea"), "agent", "AgentError"),
        (LLMError("no idea"), "llm", "LLMError"),
        (TimeoutError("no idea"), "agent", "TimeoutError"),
        (asyncio.CancelledError("no idea"), "agent", "CancelledError"),
        (StopIteration("no idea"), "agent", "RuntimeError"),
        (SystemExit("no idea"), "agent", "SystemExit"),
        ("no idea", "agent", "AgentError"),
        (None, "agent", "AgentError"),
        (Response(7), "agent", "AgentError"),  # type: ignore[arg-type]
    ],
    ids=repr,
)
@pytest.mark.parametrize("make", [Count, CountTogether])
def test_an_agent_that_fails(make: Callable[[], MultiAgentEnv], how: Any, origin: str, kind: str) -> None:
    if make is CountTogether:
        make = type("Short", (CountTogether,), {"length": 2})
    error = beside(make, seats_of(a=ones, b=Fails(how)))
    assert (error.origin, error.type, error.agent) == (origin, kind, "b")


def test_a_policy_that_cannot_take_a_seat() -> None:
    class Refuses:
        name = "refuses"

        def agent(self, agent_id: str, role: Role, seed: int) -> Any:
            raise RuntimeError("not there")

    assert beside(Count, seats_of(a=ones, b=Refuses())) == EpisodeError("agent", "RuntimeError", "not there", "b")


@pytest.mark.parametrize("make", [Count, CountTogether])
def test_a_missing_seat(make: Callable[[], MultiAgentEnv]) -> None:
    (episode,) = collect(make, [Job(0, seats_of(b=ones))])
    assert episode.error == EpisodeError(
        "agent", "AgentError", "there is no policy for 'a', only for ['b']; seat one", "a"
    )
    assert episode.turns == ()


def test_a_bad_seed_does_not_show_the_last_episode_s_returns() -> None:
    _, bad, _ = collect(Count, [Job(0, ones), Job(-1, ones), Job(0, ones)], concurrency=1)
    assert bad.error and bad.error.type == "InvalidOption"
    assert (bad.returns, bad.turns, bad.final_infos) == ({}, (), {})


@pytest.mark.parametrize("concurrency", [1, 3])
def test_make_that_raises_ends_the_stream(concurrency: int) -> None:
    made = []

    def make() -> MultiAgentEnv:
        made.append(None)
        if len(made) > concurrency:
            raise MarlGemError("no more")
        return Count()

    jobs = [Job(0, ScriptedPolicy(["break"])) for _ in range(10)]
    with pytest.raises(MarlGemError, match="no more"):
        collect(make, jobs, concurrency=concurrency)


def test_jobs_that_raise_end_the_stream() -> None:
    def jobs() -> Iterator[Job]:
        yield Job(0, ones)
        raise ValueError("no more jobs")

    async def all_of_them() -> None:
        async for _ in stream(Count, jobs()):
            pass

    with pytest.raises(ValueError, match="no more jobs"):
        asyncio.run(all_of_them())


def test_an_env_that_cannot_be_closed_is_a_warning() -> None:
    class Clings(Count):
        def close(self) -> None:
            raise OSError("stuck")

    jobs = [Job(0, ones), Job(1, ScriptedPolicy(["break"])), *(Job(seed, Waits(lambda _: 0.01)) for seed in (2, 3))]
    with pytest.warns(RuntimeWarning, match=r"Clings: close\(\) raised OSError\('stuck'\)"):
        episodes = collect(Clings, jobs, concurrency=4)
    assert [bool(episode.error) for episode in episodes] == [False, True, False, False]


# Threads


def test_blocking_envs_step_side_by_side_in_threads() -> None:
    kind = type("SideBySide", (Blocking,), {"threads": set()})
    started = time.monotonic()
    episodes = collect(kind, [Job(seed, ones) for seed in range(8)], concurrency=8)
    assert all(episode.returns == {"a": 2.0, "b": 2.0} for episode in episodes)
    assert kind.most > 1 and time.monotonic() - started < 8 * 4 * 0.05
    assert threading.current_thread().name not in kind.threads
    assert_no_threads()


def test_a_blocking_env_holds_up_nobody() -> None:
    """A hundred quick episodes pass beside some that hardly move."""

    class Slow(Blocking):
        threads: ClassVar[set[str]] = set()

        def _process_actions(self, actions: dict[str, str]) -> None:
            if "slow" in actions.values():
                time.sleep(0.5)
            Count._process_actions(self, actions)

    slow, order = ScriptedPolicy(lambda observation, info: "slow"), []
    jobs = [Job(seed, slow if seed < 3 else ones) for seed in range(103)]
    for episode in played(Slow, *jobs, concurrency=6):
        order.append(episode.seed)
    assert set(order[-3:]) == {0, 1, 2}


def test_threads_are_used_again() -> None:
    kind = type("Again", (Blocking,), {"threads": set(), "seconds": 0.0})
    collect(kind, [Job(seed, ones) for seed in range(40)], concurrency=2)
    assert len(kind.threads) <= 2


def assert_no_threads() -> None:
    """Threads that have been told to end may take a moment."""
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("marl_gem") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


# Stopping early


class Guarded(Count):
    """Says when it is closed, and whether a step was under way then."""

    live: ClassVar[list[Guarded]] = []
    closed_at_work: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        self.at_work = False
        self.live.append(self)

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.at_work = True
        if self.blocking:
            time.sleep(0.1)
        self.at_work = False
        super()._process_actions(actions)

    def close(self) -> None:
        self.closed_at_work.append(self.at_work)
        self.live.remove(self)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("how", ["close", "cancel", "raise"])
def test_stopping_early_closes_envs_and_leaves_nothing_behind(how: str, blocking: bool) -> None:
    kind = type("GuardedOnce", (Guarded,), {"live": [], "closed_at_work": [], "blocking": blocking, "length": 10**9})
    breaks = Job(0, ScriptedPolicy(["break"]))  # the only one that ever ends
    jobs = [breaks, *(Job(seed, Waits(lambda _: 0.001)) for seed in range(5))]

    async def read() -> None:
        async for _ in stream(kind, jobs, concurrency=6):
            await asyncio.sleep(0.15)
            assert len(kind.live) == 5
            if how == "raise":
                raise LookupError("enough")

    async def stop() -> set[Any]:
        if how == "close":
            episodes = stream(kind, jobs, concurrency=6)
            await anext(episodes)
            await asyncio.sleep(0.15)
            await episodes.aclose()
        else:
            reader = asyncio.create_task(read())
            await asyncio.sleep(0.4)
            reader.cancel()
            with pytest.raises(LookupError if how == "raise" else asyncio.CancelledError):
                await reader
            gc.collect()  # whoever leaves a loop over a generator leaves its closing to Python
            await asyncio.sleep(0.3)
        assert kind.live == []
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(stop()) == set()
    assert not any(kind.closed_at_work)
    assert_no_threads()


# Agents


def act(agent: Any, observation: Any = "?", info: Mapping[str, Any] | None = None) -> Response:
    return asyncio.run(agent.act(observation, info or {}))


def test_a_script_of_texts() -> None:
    policy = ScriptedPolicy(iter(["one", "two"]), name="reader")
    first, second = policy.agent("a", Role(), 0), policy.agent("b", Role(), 0)
    assert [act(first).text, act(first).text, act(second).text] == ["one", "two", "one"]
    with pytest.raises(AgentError, match="the script of 'a' has ended"):
        act(first)
    assert policy.name == "reader"


def test_a_script_that_is_a_function() -> None:
    agent = ScriptedPolicy(lambda observation, info: f"{observation} {info['mood']}").agent("a", Role(), 0)
    assert act(agent, "hm", {"mood": "good"}) == Response("hm good")


def test_random_play_is_uniform_and_from_the_seed() -> None:
    def texts(seed: int) -> list[str]:
        agent = RandomPolicy().agent("a", Role(), seed)
        return [act(agent, info={"legal_actions": ["x", "y", "z"]}).text for _ in range(300)]

    assert texts(1) == texts(1) != texts(2)
    assert all(abs(texts(1).count(action) - 100) < 5 * (300 * 2 / 9) ** 0.5 for action in "xyz")


@pytest.mark.parametrize("info", [{}, {"legal_actions": []}], ids=str)
def test_random_play_needs_legal_actions(info: dict[str, Any]) -> None:
    with pytest.raises(AgentError, match="random play in seat 'a' needs a list of legal actions"):
        act(RandomPolicy().agent("a", Role(), 0), info=info)


def test_a_person() -> None:
    shown: list[str] = []
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "hello"

    agent = HumanPolicy(shown.append, ask).agent("a", Role("Be kind."), 0)
    assert act(agent, [{"type": "text", "text": "Well?"}, {"type": "image"}]) == Response("hello")
    assert (shown, asked) == (["Be kind.", "Well?\n[image]"], ["a> "])


def test_a_person_who_leaves() -> None:
    def leave(prompt: str) -> str:
        raise EOFError

    (episode,) = collect(Count, [Job(0, HumanPolicy(lambda text: None, leave))])
    assert episode.error == EpisodeError("agent", "AgentError", "the input of 'a' ended before the episode did", "a")


@pytest.mark.parametrize("view", ["chat", "latest", "bare"])
def test_what_a_model_is_shown(view: str) -> None:
    llm = ScriptedLLM()
    policy = LLMPolicy(llm, views.view(view), Sampling(5, 0.5))
    (episode,) = collect(Count, [Job(3, seats_of(a=policy, b=ones))])
    (first, sampling, _), (second, _, _) = llm.asked
    now, later = ({"role": "user", "content": f"step {step}"} for step in (0, 2))
    system = [{"role": "system", "content": "You are a."}]
    said = {"role": "assistant", "content": episode.turns[0].response.text, "token_ids": (1, 9)}
    assert first == {"chat": [*system, now], "latest": [*system, now], "bare": [now]}[view]
    assert second == {"chat": [*system, now, said, later], "latest": [*system, later], "bare": [later]}[view]
    assert sampling == Sampling(5, 0.5)


def test_what_a_model_answers_goes_into_the_record_whole() -> None:
    llm = ScriptedLLM()
    (episode,) = collect(Count, [Job(3, seats_of(a=LLMPolicy(llm), b=ones))])
    first, second = (turn.response for turn in episode.turns_of("a"))
    assert (first.prompt_ids, first.token_ids, first.logprobs, first.version) == ((1, 2), (1, 9), (-0.5, -0.1), 3)
    assert second.token_ids == (2, 9)
    assert episode.usage == {"prompt_tokens": 4}
    assert episode.models == {"a": "scripted model@3", "b": "scripted"}


def test_every_answer_of_a_model_has_a_seed_of_its_own() -> None:
    llm = ScriptedLLM()
    collect(Count, [Job(seed, LLMPolicy(llm)) for seed in (0, 1, 0)])
    seeds = [seed for _, _, seed in llm.asked]
    assert len(seeds) == 12 and len(set(seeds)) == 8
    assert seeds[0] == derive_seed(derive_seed(0, "a"), 0)


def test_a_role_without_instructions_is_no_system_message() -> None:
    history = [views.Exchange("?", None)]
    assert views.chat(Role(), history) == views.latest(Role(), history) == [{"role": "user", "content": "?"}]
    with pytest.raises(ConfigError, match="there is no view 'wide'; choose one of chat, latest, bare"):
        views.view("wide")


def test_an_observation_as_text() -> None:
    assert as_text("hello") == "hello"
    assert as_text([{"type": "text", "text": "a"}, {"type": "audio"}]) == "a\n[audio]"


def test_derived_seeds() -> None:
    assert derive_seed(0, "a") == 1481238324449861677, "the same on every machine, in every run"
    assert all(0 <= derive_seed(number) < 2**63 for number in range(100))
    assert len({derive_seed(*parts) for parts in [(0,), (1,), (0, 1), (1, 0), ("a",), ("a", "\ud800"), ()]}) == 7
