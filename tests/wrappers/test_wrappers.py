"""Wrappers: every promise holds through every one of them, and each changes what it says and nothing else."""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib.util
import json
import math
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marl_gem
from marl_gem import Metadata, MultiAgentEnv, ParallelSelector, Response, Role, SequentialSelector, ToolSpec, VectorEnv
from marl_gem.errors import ConfigError, EpisodeOver, InvalidAction, InvalidOption, LLMError, RecordError, ScenarioFault
from marl_gem.policies import LLMPolicy, RandomPolicy, ScriptedPolicy, summarizer
from marl_gem.rollout import Job, collect
from marl_gem.testing import CHECKS, Plan, check_env
from marl_gem.types import Episode, EpisodeError, Observation, from_json, to_json
from marl_gem.views import as_json, chat, plain, summary
from marl_gem.wrappers import (
    EpisodeStatistics,
    MapObservation,
    ObservationWrapper,
    ParseAction,
    Parser,
    RecordEpisodes,
    RewardClip,
    RewardScale,
    RewardWrapper,
    ShowHistory,
    Statistics,
    StepPenalty,
    TimeLimit,
    Wrapper,
    boxed,
    matching,
    tagged,
)

# The scenarios


class Inn(MultiAgentEnv):
    """Guests say in turn `leave`, `banish NAME`, `invite NAME`, `tip NAME`, or a number, which is their reward."""

    possible_agents = ("ann", "bob", "cat")
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential", reward_range=(-9.0, 9.0), joins=True)
    max_steps = 20

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.inn = options.get("inn", "Crown")
        super()._reset({name: value for name, value in options.items() if name != "inn"})
        self.heard = [f"The {self.inn} opens, room {self.rng.randrange(100)}."]

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}, a guest.", (ToolSpec("ring"),))

    def observe(self, agent: str) -> str:
        return f"{agent} hears: {self.heard[-1]}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((speaker, text),) = actions.items()
        self.heard.append(f"{speaker}: {text[:20]} ({self.rng.randrange(1000)})")
        verb, _, name = text.partition(" ")
        if verb == "break":
            raise RuntimeError("a window")
        if verb == "leave":
            self.terminations[speaker] = True
        elif verb == "banish" and name in self.agents:
            self.terminations[name] = True
        elif verb == "invite" and name not in self.returns and len(name) < 9 and len(self.returns) < 6:
            self.add_agent(name)
            self.rewards[name] = 4.0
        elif verb == "tip" and name in self.returns:
            self.rewards[name] = self.rewards.get(name, 0.0) + 2.0
        elif len(text) == 1 and text in "0123456789":
            self.rewards[speaker] = float(text)


class Race(MultiAgentEnv):
    """Both run `fast` or `slow` for three rounds, or give `up`; the faster one gets a point each round."""

    possible_agents = ("left", "right")
    selector = ParallelSelector()
    metadata = Metadata(turn_order="parallel", reward_range=(-1.0, 1.0))

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.run = dict.fromkeys(self.possible_agents, 0)

    def observe(self, agent: str) -> Observation:
        track = {"type": "image", "url": f"data:,{self.run[agent]}"}
        return [{"type": "text", "text": f"You have run {self.run[agent]}."}, track]

    def legal_actions(self, agent: str) -> list[str]:
        return ["fast", "slow", "up"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            self.run[agent] += {"fast": self.rng.randint(1, 3), "slow": 1}.get(text, 0)
            self.terminations[agent] = text == "up" or self.steps == 3
            if text not in self.legal_actions(agent):
                self.infos[agent]["illegal"] = "run fast or slow, or give up"
        sign = float((self.run["left"] > self.run["right"]) - (self.run["left"] < self.run["right"]))
        self.rewards = {agent: sign if agent == "left" else -sign for agent in actions}


class Fair(Inn):
    """An inn where it is known what can be said."""

    metadata = Metadata(joins=True)

    def legal_actions(self, agent: str) -> list[str]:
        return ["leave", *(f"{verb} {name}" for verb in ("invite", "tip") for name in ("dan", "eve", "bob")), "3"]


HAS_TEXTARENA = importlib.util.find_spec("textarena") is not None
ENVS: dict[str, Callable[[], MultiAgentEnv]] = {
    "inn": Inn,
    "fair": Fair,
    "race": Race,
    "game:KuhnPoker-v0": functools.partial(marl_gem.make, "game:KuhnPoker-v0"),
    "ta:TicTacToe-v0": functools.partial(marl_gem.make, "ta:TicTacToe-v0"),
}
NAMES = [name for name in ENVS if HAS_TEXTARENA or not name.startswith("ta:")]
every_env = pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.skipif(name not in NAMES, reason="extra"))
        for name, make in ENVS.items()
    ],
)
FOLDER = tempfile.TemporaryDirectory()
WRAPPERS: dict[str, Callable[[MultiAgentEnv], MultiAgentEnv]] = {
    "nothing": Wrapper,
    "limit": lambda env: TimeLimit(env, 4),
    "penalty": lambda env: StepPenalty(env, 0.1),
    "scale": lambda env: RewardScale(env, -0.3),
    "clip": lambda env: RewardClip(env, -0.5, 1.5),
    "boxed": lambda env: ParseAction(env, boxed(), "empty"),
    "tagged": lambda env: ParseAction(env, tagged("move")),
    "matching": lambda env: ParseAction(env, matching(r"^[\w\[\]]+(?: \w+)*$")),
    "map": lambda env: MapObservation(env, str.swapcase, agents=("ann", "left", "player_0", "dan")),
    "statistics": EpisodeStatistics,
    "record": lambda env: RecordEpisodes(env, FOLDER.name),
    "history": ShowHistory,
    "summary": lambda env: ShowHistory(env, summary(lambda text: f"{len(text)} characters", 2, 1)),
}
every_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
BRIEF = Plan(seeds=(1,), steps=25, copies=3)


def choose(env: MultiAgentEnv, agent: str, dice: random.Random) -> str:
    """Something that the scenario understands, mostly."""
    named = [f"{verb} {name}" for verb in ("banish", "invite", "tip") for name in ("ann", "bob", "dan", "eve")]
    words = ["leave", "3", "", "\ud800 {} \\boxed{", "\\boxed{tip ann}"]
    return dice.choice([*(env.legal_actions(agent) or named), *words])


def play(env: MultiAgentEnv, seed: int, dice_of: Callable[[], random.Random] | None = None) -> list[Any]:
    """All that happens in an episode."""
    dice = dice_of() if dice_of else random.Random(seed)
    record: list[Any] = [copy.deepcopy(env.reset(seed=seed))]
    while not env.done:
        actions = {agent: choose(env, agent, dice) for agent in env.acting}
        record.append((actions, copy.deepcopy(env.step(actions)), env.acting, env.agents, dict(env.returns)))
    return record


def say(env: MultiAgentEnv, *texts: str) -> Any:
    """One agent after the other says these; gives what the last step gave."""
    step = None
    for text in texts:
        step = env.step(dict.fromkeys(env.acting, text))
    return step


def state(value: Any, around: tuple[int, ...] = ()) -> Any:
    """Everything that an env holds, down to its parts' parts, in a form that can be compared."""
    if id(value) in around:
        return "itself"
    around = (*around, id(value))
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, Mapping):
        return [(key, state(part, around)) for key, part in value.items()]
    if isinstance(value, list | tuple | set):
        return [type(value).__name__, *(state(part, around) for part in value)]
    if hasattr(value, "__dict__") and not callable(value):
        return [type(value).__name__, state(vars(value), around)]
    return value


# All promises, through every wrapper and through stacks of them


@every_env
@every_wrapper
def test_every_promise_holds_through_a_wrapper(
    make: Callable[[], MultiAgentEnv], wrap: Callable[[MultiAgentEnv], MultiAgentEnv]
) -> None:
    report = check_env(lambda: wrap(make()), BRIEF, only=[name for name in CHECKS if name != "processes"])
    report.raise_if_failed()
    assert not {outcome.check for outcome in report.outcomes if outcome.status == "skipped"} - {"legal_actions"}


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.sampled_from([*WRAPPERS]), min_size=2, max_size=7))
def test_every_promise_holds_through_stacks_in_any_order_that_makes_sense(name: str, wrappers: list[str]) -> None:
    def make() -> MultiAgentEnv:
        env = ENVS[name]()
        for wrapper in wrappers:
            try:
                env = WRAPPERS[wrapper](env)
            except ConfigError as error:
                assert "right order" in str(error)
        return env

    plan = Plan(seeds=(3,), steps=12, copies=2)
    checks = [name for name in CHECKS if name not in ("processes", "isolation", "hostile_actions")]
    check_env(make, plan, only=checks).raise_if_failed()


WRONG: list[Callable[[tuple[str, ...]], Any]] = [
    lambda acting: {},
    lambda acting: {"nobody": "hello"},
    lambda acting: dict.fromkeys([*acting, "nobody"], "hello"),
    lambda acting: dict.fromkeys(acting),
    lambda acting: dict.fromkeys(acting, 7),
    lambda acting: "hello",
    lambda acting: None,
    lambda acting: [(agent, "hello") for agent in acting],
]


@every_env
@every_wrapper
def test_wrong_actions_change_nothing_in_the_wrapper_either(
    make: Callable[[], MultiAgentEnv], wrap: Callable[[MultiAgentEnv], MultiAgentEnv]
) -> None:
    env = wrap(make())
    env.reset(seed=5)
    env.step(dict.fromkeys(env.acting, "slow"))
    if env.done:
        env.reset(seed=5)
    before = state(env)
    for wrong in WRONG:
        with pytest.raises(InvalidAction):
            env.step(wrong(env.acting))
        assert state(env) == before


@every_env
def test_a_wrapper_that_changes_nothing_changes_nothing(make: Callable[[], MultiAgentEnv]) -> None:
    for seed in range(5):
        assert play(Wrapper(Wrapper(make())), seed) == play(make(), seed)


# What an env tells, through wrappers


def test_what_the_env_tells_is_asked_of_the_env() -> None:
    inner = Inn()
    env = TimeLimit(RewardScale(Wrapper(inner), 2.0), 7)
    env.reset(seed=3)
    say(env, "3")
    names = ["possible_agents", "selector", "seed", "steps", "agents", "acting", "done", "rng", "scenario", "blocking"]
    names += ["infos", "terminations", "truncations"]
    assert {name: getattr(env, name) for name in names} == {name: getattr(inner, name) for name in names}
    assert env.scenario == "Inn" and env.steps == 1 and env.agents == ("ann", "bob", "cat")
    inner.blocking = True
    inner.heard.append("Fire!")
    assert env.blocking and env.observe("bob") == "bob hears: Fire!"
    assert env.unwrapped is inner and isinstance(env, MultiAgentEnv)
    assert not hasattr(env, "heard"), "a scenario's own things are asked of env.unwrapped"


def test_what_is_set_goes_to_the_env() -> None:
    inner = Inn()
    env = Wrapper(Wrapper(inner))
    env.max_steps, env.scenario, env.selector = 3, "house:Inn-v0", ParallelSelector()
    assert (inner.max_steps, inner.scenario, inner.selector) == (3, "house:Inn-v0", env.selector)


def test_a_registered_scenario_may_be_wrapped() -> None:
    marl_gem.register("wrapped:Inn-v0", lambda: RewardScale(TimeLimit(Inn(), 9), 2.0), agents=3)
    env = marl_gem.make("wrapped:Inn-v0", max_steps=2)
    env.reset()
    _, _, _, truncations, _ = say(env, "1", "2")
    assert env.scenario == env.unwrapped.scenario == "wrapped:Inn-v0"
    assert truncations == dict.fromkeys(Inn.possible_agents, True) and env.returns == {"ann": 2.0, "bob": 4.0, "cat": 0}


def test_a_fork_goes_through_the_env_s_own() -> None:
    class Guarded(Inn):
        """Holds what cannot be copied."""

        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.forks = 0

        def fork(self) -> Any:
            twin = Guarded()
            twin.__dict__.update({name: copy.deepcopy(part) for name, part in vars(self).items() if name != "lock"})
            self.forks += 1
            return twin

    class Loud:
        """A function that cannot be copied."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __call__(self, text: str) -> str:
            return text.upper()

    inner = Guarded()
    env = ShowHistory(StepPenalty(MapObservation(ParseAction(inner, Loud()), Loud()), 1.0), "chat")
    env.reset(seed=1)
    say(env, "a", "b")
    twin = env.fork()
    assert inner.forks == 1
    assert say(twin, "c", "d") == say(env, "c", "d")
    say(twin, "e")
    assert (env.steps, env.returns["ann"]) == (4, -2.0) and (twin.steps, twin.returns["bob"]) == (5, -2.0)


def test_closing_goes_through() -> None:
    closed = []

    class House(Inn):
        def close(self) -> None:
            closed.append("house")

    ShowHistory(TimeLimit(House(), 3)).close()
    assert closed == ["house"]


@every_wrapper
def test_an_episode_that_was_under_way_is_not_gone_on_with(wrap: Callable[[MultiAgentEnv], MultiAgentEnv]) -> None:
    inner = Inn()
    inner.reset(seed=1)
    env = wrap(inner)
    assert env.done and env.agents == env.acting == ()
    with pytest.raises(EpisodeOver, match=r"Inn: the episode is never reset; call reset\(\)"):
        env.step({"ann": "hello"})
    env.reset(seed=1)
    env.step({"ann": "hello"})


@every_wrapper
def test_a_refused_reset_leaves_the_episode_as_it_is(wrap: Callable[[MultiAgentEnv], MultiAgentEnv]) -> None:
    env = wrap(Inn())
    env.reset(seed=1)
    say(env, "3")
    before = state(env)
    with pytest.raises(InvalidOption):
        env.reset(seed=-1)
    assert state(env) == before
    say(env, "3")
    with pytest.raises(InvalidOption):
        env.reset(options={"weather": "rain"})
    with pytest.raises(EpisodeOver):
        say(env, "3")


@pytest.mark.parametrize("wrong", [None, Inn, "game:KuhnPoker-v0"], ids=str)
def test_only_an_env_can_be_wrapped(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"TimeLimit wraps an env, not .*marl_gem\.make\(id\)"):
        TimeLimit(wrong, 3)


def test_wrappers_work_where_envs_do() -> None:
    def make() -> MultiAgentEnv:
        return EpisodeStatistics(RewardScale(TimeLimit(Inn(), 4), 2.0))

    with VectorEnv(make, 3, seed=1, autoreset="same_step") as envs:
        envs.reset()
        for _ in range(4):
            results = envs.step([dict.fromkeys(env.acting, "3") for env in envs])
        assert [result.returns for result in results] == [{"ann": 12.0, "bob": 6.0, "cat": 6.0}] * 3
        assert results[0].final and results[0].final.infos["ann"]["episode"]["return"] == 12.0


def test_wrapped_envs_convert() -> None:
    pytest.importorskip("pettingzoo")
    from marl_gem.convert import to_aec

    env = to_aec(RewardScale(ParseAction(marl_gem.make("game:KuhnPoker-v0"), boxed(), "empty"), 0.5))
    env.reset(seed=1)
    for _ in env.agent_iter():
        _, _, ended, cut, info = env.last()
        env.step(None if ended or cut else info["legal_actions"][0])
    assert sorted(env.returns.values()) == [-0.5, 0.5]


# The order


ORDERS: list[tuple[str, str, str]] = [
    ("map", "history", r"MapObservation changes the observations.*ShowHistory\(MapObservation\(Inn\)\)"),
    ("boxed", "history", r"ParseAction changes the actions.*ShowHistory\(ParseAction\(Inn\)\)"),
    ("history", "summary", r"ShowHistory changes the prompts.*ShowHistory\(Inn\)"),
    ("scale", "record", r"RewardScale changes the rewards.*RecordEpisodes\(RewardScale\(Inn\)\)"),
    ("clip", "record", r"RewardClip changes the rewards"),
    ("penalty", "record", r"StepPenalty changes the rewards"),
    ("boxed", "record", r"ParseAction changes the actions"),
    ("map", "record", r"MapObservation changes the observations"),
    ("limit", "record", r"TimeLimit changes the ending.*RecordEpisodes\(TimeLimit\(Inn\)\)"),
    ("limit", "statistics", r"TimeLimit changes the ending.*EpisodeStatistics\(TimeLimit\(Inn\)\)"),
]


@pytest.mark.parametrize(("outer", "inner", "complaint"), ORDERS, ids=lambda value: str(value)[:12])
def test_an_order_that_makes_no_sense(outer: str, inner: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        WRAPPERS[outer](WRAPPERS[inner](Inn()))


@pytest.mark.parametrize("outer", WRAPPERS)
@pytest.mark.parametrize("inner", WRAPPERS)
def test_every_other_order_is_taken_and_one_of_the_two_always_is(outer: str, inner: str) -> None:
    def fits(one: str, other: str) -> bool:
        try:
            WRAPPERS[one](WRAPPERS[other](Inn()))
        except ConfigError:
            return False
        return True

    views = {"history", "summary"}
    refused = {(outer, inner) for outer, inner, _ in ORDERS}
    refused |= {(parser, seen) for parser in ("boxed", "tagged", "matching") for seen in (*views, "record")}
    refused |= {("map", "summary"), *((one, other) for one in views for other in views)}
    assert fits(outer, inner) == ((outer, inner) not in refused)
    assert fits(outer, inner) or fits(inner, outer) or {outer, inner} <= views


def test_the_order_is_told_for_the_whole_stack() -> None:
    env = ShowHistory(RecordEpisodes(RewardClip(EpisodeStatistics(TimeLimit(Inn(), 3))), FOLDER.name))
    order = "ShowHistory(RecordEpisodes(ParseAction(RewardClip(EpisodeStatistics(TimeLimit(Inn))))))"
    with pytest.raises(ConfigError) as caught:
        ParseAction(env, boxed())
    assert str(caught.value).endswith(f"around RecordEpisodes. The right order is {order}")


# TimeLimit


@every_env
def test_a_time_limit_is_what_max_steps_is(make: Callable[[], MultiAgentEnv]) -> None:
    for limit in (1, 2, 3, 5):
        for seed in range(6):
            limited = make()
            limited.max_steps = limit
            assert play(TimeLimit(make(), limit), seed) == play(limited, seed)


def test_a_time_limit_truncates_whoever_is_left() -> None:
    env = TimeLimit(Inn(), 2)
    env.reset(seed=0)
    observations, rewards, terminations, truncations, infos = say(env, "banish cat", "invite dan")
    assert observations == {} and env.done and env.acting == env.agents == ()
    assert rewards.keys() == {"ann", "bob"} and env.returns == {"ann": 0.0, "bob": 0.0, "cat": 0.0, "dan": 4.0}
    assert truncations == {"ann": True, "bob": True} and not any(terminations.values())
    assert infos["ann"]["final_observation"] == env.observe("ann") != ""
    with pytest.raises(EpisodeOver, match="the episode is over"):
        env.step({"ann": "hello"})
    env.reset(seed=0)
    assert env.agents == ("ann", "bob", "cat")


def test_an_end_at_the_limit_is_no_truncation() -> None:
    env = TimeLimit(Race(), 3)
    env.reset()
    _, _, terminations, truncations, _ = say(env, "fast", "fast", "fast")
    assert all(terminations.values()) and not any(truncations.values())


def test_the_smaller_limit_holds_and_can_be_set() -> None:
    env = TimeLimit(TimeLimit(Inn(), 5), 8)
    assert (env.max_steps, env.env.max_steps, env.unwrapped.max_steps) == (5, 5, 20)
    env.max_steps = 3
    assert (env.max_steps, env.unwrapped.max_steps) == (3, 20)
    env.reset()
    say(env, "0", "0", "0")
    assert env.done
    env.max_steps = None
    assert env.max_steps == 5


def test_zero_sum_is_not_declared_under_a_limit() -> None:
    env = marl_gem.make("game:KuhnPoker-v0")
    assert env.metadata.zero_sum and TimeLimit(env, 1).metadata == msgspec.structs.replace(env.metadata, zero_sum=None)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "3", True, None], ids=str)
def test_a_limit_is_a_number_of_steps(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="TimeLimit: max_steps is a whole number"):
        TimeLimit(Inn(), wrong)


# Rewards


def test_rewards_in_all_their_ways() -> None:
    """A newcomer's first, one in the very step that ends an agent, and one that comes after its end."""
    env = RewardScale(Inn(), 10.0)
    env.reset(seed=0)
    _, rewards, *_ = say(env, "invite dan")
    assert rewards == env.rewards == {"ann": 0.0, "bob": 0.0, "cat": 0.0}
    assert env.returns == {"ann": 0.0, "bob": 0.0, "cat": 0.0, "dan": 40.0}
    _, rewards, *_ = say(env, "leave", "tip bob")
    assert "bob" not in rewards and env.returns["bob"] == 20.0
    _, rewards, *_ = say(env, "7", "tip bob", "tip dan")
    assert rewards == {"ann": 0.0, "cat": 0.0, "dan": 20.0}
    assert env.returns == {"ann": 0.0, "bob": 40.0, "cat": 0.0, "dan": 130.0}
    assert env.unwrapped.returns == {"ann": 0.0, "bob": 4.0, "cat": 0.0, "dan": 13.0}


def test_each_own_action_costs_also_the_last_one() -> None:
    env = StepPenalty(Inn(), 0.5)
    env.reset(seed=0)
    _, rewards, *_ = say(env, "banish bob")
    assert rewards == {"ann": -0.5, "bob": 0.0, "cat": 0.0}
    _, rewards, *_ = say(env, "leave")
    assert rewards == {"ann": 0.0, "cat": -0.5} and env.agents == ("ann",)
    assert say(env, "tip cat")[1] == {"ann": -0.5}
    assert env.returns == {"ann": -1.0, "bob": 0.0, "cat": 1.5}
    race = StepPenalty(Race(), 0.5)
    race.reset(seed=0)
    assert say(race, "up")[1] == {"left": -0.5, "right": -0.5}


def test_clipping_bounds_each_reward_not_their_sum() -> None:
    env = RewardClip(Inn(), -1.0, 1.5)
    env.reset(seed=0)
    say(env, "leave", "9", "tip ann", "1", "tip ann")
    assert env.returns == {"ann": 3.0, "bob": 2.5, "cat": 0.0}
    assert env.rewards == {"bob": 0.0, "cat": 0.0}


CHANGES: dict[str, tuple[Callable[[MultiAgentEnv], MultiAgentEnv], Callable[[float, bool], float]]] = {
    "penalty": (lambda env: StepPenalty(env, 0.25), lambda reward, acted: reward - 0.25 * acted),
    "scale": (lambda env: RewardScale(env, -0.5), lambda reward, acted: -0.5 * reward),
    "clip": (lambda env: RewardClip(env, -0.5, 1.5), lambda reward, acted: max(-0.5, min(1.5, reward))),
}


@every_env
@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([*CHANGES]), max_size=4), st.integers(0, 10**6))
def test_rewards_and_returns_against_a_count_by_hand(
    make: Callable[[], MultiAgentEnv], changes: list[str], seed: int
) -> None:
    def change(reward: float, acted: bool) -> float:
        for name in changes:
            reward = CHANGES[name][1](reward, acted)
        return reward

    env = make()
    for name in changes:
        env = CHANGES[name][0](env)
    bare, expected, told = play(make(), seed), dict[str, float](), dict[str, float]()
    for (actions, (_, inner, *_), _, _, returns), (_, (_, changed, *_), _, _, sums) in zip(
        bare[1:], play(env, seed)[1:], strict=True
    ):
        assert changed == pytest.approx({agent: change(reward, agent in actions) for agent, reward in inner.items()})
        for agent, total in returns.items():
            late = total - told.get(agent, 0.0)
            gained = change(inner[agent], agent in actions) if agent in inner else change(late, False) if late else 0.0
            expected[agent] = expected.get(agent, 0.0) + gained
        assert sums == pytest.approx(expected)
        told = returns


def test_what_is_declared_of_rewards_follows_them() -> None:
    inner = Metadata(zero_sum=True, turn_order="sequential", reward_range=(-2.0, 2.0))
    facts = {
        name: wrap(marl_gem.make("game:KuhnPoker-v0")).metadata
        for name, wrap in {
            "penalty": WRAPPERS["penalty"],
            "scale": WRAPPERS["scale"],
            "clip": WRAPPERS["clip"],
            "other": RewardWrapper,
        }.items()
    }
    ranges = {"penalty": (-2.1, 2.0), "scale": (-0.6, 0.6), "clip": (-0.5, 1.5), "other": None}
    for name, found in facts.items():
        zero_sum = True if name == "scale" else None
        assert found == msgspec.structs.replace(inner, zero_sum=zero_sum, reward_range=ranges[name])
    assert RewardClip(one_agent(), -1, 0).metadata.reward_range == (-1.0, 0.0)
    assert RewardScale(one_agent(), 2).metadata == StepPenalty(one_agent(), 2).metadata == Metadata()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: StepPenalty(Inn(), -0.1), "so give 0.1 instead of -0.1"),
        (lambda: StepPenalty(Inn(), math.nan), "penalty is a finite number"),
        (lambda: RewardScale(Inn(), math.inf), "factor is a finite number"),
        (lambda: RewardScale(Inn(), "2"), "factor is a finite number, not '2'"),
        (lambda: RewardScale(Inn(), True), "factor is a finite number"),
        (lambda: RewardClip(Inn(), 1.0, -1.0), "0 must lie between"),
        (lambda: RewardClip(Inn(), 0.5, 1.0), "0 must lie between"),
        (lambda: RewardClip(Inn(), None, 1.0), "low is a finite number"),
    ],
)
def test_numbers_that_make_no_sense(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make()


def test_numbers_may_be_numpy_s() -> None:
    numpy = pytest.importorskip("numpy")
    assert TimeLimit(Inn(), numpy.int64(3)).max_steps == 3
    env = StepPenalty(Inn(), numpy.float32(0.5))
    env.reset(seed=0)
    (agent,) = env.acting
    _, rewards, *_ = env.step({agent: "0"})
    assert rewards[agent] == -0.5 and type(rewards[agent]) is float


def test_a_reward_that_no_float_can_hold_is_a_fault() -> None:
    env = RewardScale(RewardScale(Inn(), 1e200), 1e200)
    env.reset()
    say(env, "0")
    with pytest.raises(ScenarioFault, match=r"Inn: step 2 gave 'bob' the reward inf"):
        say(env, "3")
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "3")
    env.reset()
    say(env, "0")


def test_a_reward_of_one_s_own() -> None:
    class Halves(RewardWrapper):
        def reward(self, agent: str, reward: float, acted: bool) -> float:
            return reward / 2 if agent == "ann" else reward

    env = Halves(Inn())
    env.reset()
    say(env, "3", "3")
    assert env.returns == {"ann": 1.5, "bob": 3.0, "cat": 0.0}
    broken = RewardWrapper(Inn())
    broken.reset()
    with pytest.raises(ScenarioFault, match=r"RewardWrapper\.reward raised NotImplementedError.*must define reward"):
        say(broken, "3")


# ParseAction


def one_agent(**given: Any) -> MultiAgentEnv:
    """An env with one agent `a`; whatever is given replaces its methods and attributes."""
    parts = {
        "possible_agents": ("a",),
        "selector": SequentialSelector(),
        "observe": lambda self, agent: "Well?",
        "_process_actions": lambda self, actions: self.infos["a"].update(given=actions["a"]),
    }
    return type("Tiny", (MultiAgentEnv,), parts | given)()


def taken(text: str, *how: Any) -> tuple[str, str | None]:
    """What the env is given of a text, and what infos tell was found."""
    env = ParseAction(one_agent(), *how)
    env.reset()
    *_, infos = env.step({"a": text})
    return infos["a"]["given"], infos["a"]["parsed"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{4}", "4"),
        (r"The middle: \boxed{ [4] }.", "[4]"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{bet {all}}} }", r"\text{bet {all}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\}}", r"\}"),
        (r"{ \boxed {4} ", "4"),
        (r"}} \boxed{4}", "4"),
        (r"\boxed{1} and then \boxed{2", "1"),
        (r"\boxed{I think \boxed{4}", "4"),
        (r"\boxed{a \boxed{4} b}", "4"),
        (r"\\boxed{4}", "4"),
        ("\\boxed{two\nlines}", "two\nlines"),
        ("\\boxed{\ud800}", "\ud800"),
        (r"\boxed{}", ""),
        ("", None),
        ("boxed{4}", None),
        (r"\boxed 4", None),
        (r"\boxed{", None),
        (r"\boxed}", None),
        (r"\fbox{4}", None),
    ],
)
def test_what_stands_in_a_box(text: str, found: str | None) -> None:
    assert taken(text, boxed()) == (text if found is None else found, found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>4</answer>", "4"),
        ("<think><answer>1</answer></think><answer>\n[4]\n</answer> done", "[4]"),
        ("<answer>1</answer> <answer>2", "1"),
        ("<answer> hm <answer>2</answer>", "2"),
        ("<answer>1</answer></answer>", "1"),
        ("<Answer>4</ANSWER >", "4"),
        ("<answer></answer>", ""),
        ("</answer>4<answer>", None),
        ("<answers>4</answers>", None),
        ("<answer>4", None),
        ("", None),
    ],
)
def test_what_stands_between_tags(text: str, found: str | None) -> None:
    assert taken(text, tagged()) == (text if found is None else found, found)


def test_tags_of_any_name() -> None:
    assert taken("<a.b>4</a.b><axb>5</axb>", tagged("a.b")) == ("4", "4")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"move: (\w+)", "move: up, no, move: down", "down"),
        (r"\[\d\]", "[1] [2]", "[2]"),
        (r"(x)|y", "x y", "x"),
        (r"(x)|y", "y", None),
        (r"(\d)(\d)", "12", "1"),
        (r"(x*)$", "no", ""),
        (r"z", "no", None),
    ],
)
def test_what_an_expression_matches(pattern: str, text: str, found: str | None) -> None:
    assert taken(text, matching(pattern)) == (text if found is None else found, found)


def test_where_nothing_is_found_the_rule_is_declared() -> None:
    assert taken("I bet.", boxed()) == taken("I bet.", boxed(), "unchanged") == ("I bet.", None)
    assert taken("I bet.", boxed(), "empty") == ("", None)
    assert taken("I bet.", lambda text: text[-4:-1]) == ("bet", "bet")
    with pytest.raises(ConfigError, match=r"otherwise is one of .*'unchanged', 'empty'.*, not 'drop'"):
        ParseAction(Inn(), boxed(), "drop")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a parser is a function"):
        ParseAction(Inn(), "boxed")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no regular expression: "):
        matching("(")


@pytest.mark.parametrize("parser", [boxed(), tagged()], ids=["boxed", "tagged"])
@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 150_000,
        "<answer>" * 150_000,
        "{" * 1_000_000,
        "\\boxed" + " " * 1_000_000,
        "\\boxed{" + "{}" * 500_000,
        "<answer" + " " * 1_000_000,
        "<answer>" + "</answer" * 100_000,
        "\x00\ud800\\boxed{\ud800}<answer>\ud800</answer>",
    ],
    ids=lambda text: text[:9].encode("unicode_escape").decode(),
)
def test_no_text_takes_long(parser: Parser, text: str) -> None:
    begun = time.perf_counter()
    parser.find(text)
    assert time.perf_counter() - begun < 3


LEGAL = ["[bet]", "{", " wait ", "", "two words"]
LISTED: list[tuple[Any, Any, list[str] | None]] = [
    (boxed(), "unchanged", [r"\boxed{[bet]}", "{", " wait ", r"\boxed{}", r"\boxed{two words}"]),
    (boxed(), "empty", [r"\boxed{[bet]}", r"\boxed{}", r"\boxed{two words}"]),
    (tagged("a"), "empty", ["<a>[bet]</a>", "<a>{</a>", "<a></a>", "<a>two words</a>"]),
    (matching(r"\w+ \w+"), "unchanged", LEGAL),
    (matching(r"\w+ \w+"), "empty", ["", "two words"]),
    (lambda text: text.removesuffix("!"), "empty", LEGAL),
    (lambda text: "always", "unchanged", None),
]


@pytest.mark.parametrize(("parser", "otherwise", "listed"), LISTED)
def test_legal_actions_are_listed_as_they_must_be_written(
    parser: Any, otherwise: Any, listed: list[str] | None
) -> None:
    env = ParseAction(one_agent(legal_actions=lambda self, agent: LEGAL), parser, otherwise)
    _, infos = env.reset()
    assert env.legal_actions("a") == infos["a"].get("legal_actions") == listed
    arrived = []
    for text in listed or []:
        *_, infos = env.step({"a": text})
        assert infos["a"]["legal_actions"] == listed
        arrived.append(infos["a"]["given"])
    assert arrived == [action for action in LEGAL if action in arrived]
    assert len(arrived) == len(listed or [])
    assert env.unwrapped.legal_actions("a") == LEGAL == ["[bet]", "{", " wait ", "", "two words"]


@every_env
def test_random_play_writes_as_the_parser_reads(make: Callable[[], MultiAgentEnv]) -> None:
    if make().legal_actions.__func__ is MultiAgentEnv.legal_actions or make is Inn:  # type: ignore[attr-defined]
        pytest.skip("the scenario lists no legal actions")
    for wrap in (lambda env: env, lambda env: ParseAction(env, boxed(), "empty")):
        episodes = collect(lambda wrap=wrap: wrap(make()), [Job(seed, RandomPolicy()) for seed in range(5)])
        assert not any(episode.error for episode in episodes)
        assert not any("illegal" in turn.info for episode in episodes for turn in episode.turns)
    assert all(r"\boxed{" in turn.response.text for episode in episodes for turn in episode.turns)


@pytest.mark.parametrize("parser", [int, lambda text: 7, lambda text: [text]], ids=["raises", "number", "list"])
def test_a_parser_that_fails_is_a_fault_and_not_an_action(parser: Any) -> None:
    env = ParseAction(Inn(), parser)
    env.reset(seed=4)
    with pytest.raises(
        ScenarioFault, match=r"Inn: ParseAction\.parser raised \w+ at step 0 of the episode with seed 4"
    ):
        say(env, "hello")
    assert env.unwrapped.steps == 0
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "hello")
    env.reset()
    with pytest.raises(InvalidAction):
        env.step({"bob": "hello"})


# MapObservation


def test_texts_are_mapped_and_pictures_stay() -> None:
    env = MapObservation(Race(), str.upper)
    observations, _ = env.reset(seed=0)
    inner = env.unwrapped.observe("left")
    assert observations["left"] == env.observe("left") == [{**inner[0], "text": "YOU HAVE RUN 0."}, inner[1]]  # type: ignore[dict-item]
    assert inner == Race.observe(env.unwrapped, "left"), "what the env gave is as it was"  # type: ignore[arg-type]
    tool = [{"type": "tool_result", "name": "f", "text": "as it is"}]
    assert MapObservation(Race(), str.upper).observation("left", tool) == tool


def test_final_observations_are_mapped_too_and_once() -> None:
    env = MapObservation(MapObservation(Inn(), lambda text: f"{text}1"), lambda text: f"{text}2")
    env.reset(seed=0)
    *_, infos = say(env, "banish cat")
    assert infos["cat"]["final_observation"] == env.observe("cat")
    assert env.observe("cat") == f"{env.unwrapped.observe('cat')}12"


@pytest.mark.parametrize("agents", ["ann", ["ann", "dan"], iter(["ann"])], ids=["one", "some", "an iterator"])
def test_some_agents_are_shown_something_else(agents: str | Iterable[str]) -> None:
    env = MapObservation(Inn(), lambda text: "fog", agents)
    assert env.reset(seed=0)[0] == {"ann": "fog"}
    observations, *_ = say(env, "banish cat")
    assert observations == {"bob": env.unwrapped.observe("bob")}
    assert env.observe("ann") == "fog"


@pytest.mark.parametrize("function", [len, lambda text: None, json.loads], ids=["number", "None", "raises"])
def test_a_function_that_gives_no_text_is_a_fault(function: Any) -> None:
    env = MapObservation(Inn(), function, agents="bob")
    env.reset(seed=4)
    with pytest.raises(ScenarioFault, match=r"Inn: MapObservation\.observation raised \w+ at step 1 .* seed 4"):
        say(env, "hello")
    with pytest.raises(EpisodeOver, match="not reset after a failure"):
        say(env, "hello")
    assert env.done
    env.reset()
    assert env.agents == ("ann", "bob", "cat")
    with pytest.raises(ConfigError, match="takes a function"):
        MapObservation(Inn(), "upper")  # type: ignore[arg-type]


def test_an_observation_of_one_s_own() -> None:
    class Named(ObservationWrapper):
        def observation(self, agent: str, observation: Observation) -> Observation:
            return f"[{agent}] {observation}"

    env = Named(Inn())
    assert env.reset(seed=0)[0]["ann"] == f"[ann] {env.unwrapped.observe('ann')}"


# EpisodeStatistics


def test_every_agent_is_told_at_its_end() -> None:
    env = EpisodeStatistics(TimeLimit(Inn(), 5))
    env.reset(seed=0)
    *_, infos = say(env, "3", "leave")
    assert infos["bob"]["episode"] == {"return": 0.0, "steps": 2, "turns": 1}
    assert "episode" not in infos["ann"]
    *_, infos = say(env, "tip bob", "4", "2")
    assert infos["ann"]["episode"] == {"return": 7.0, "steps": 5, "turns": 2}
    assert infos["cat"]["episode"] == {"return": 2.0, "steps": 5, "turns": 2}
    found = env.statistics
    assert found.returns == {"ann": 7.0, "bob": 2.0, "cat": 2.0}, "what came after the end counts"
    assert (found.episodes, found.steps, found.turns) == (1, 5.0, {"ann": 2.0, "bob": 1.0, "cat": 2.0})


def test_averages_over_the_newest_episodes() -> None:
    env = EpisodeStatistics(TimeLimit(Inn(), 3), window=2)
    assert env.statistics == Statistics()
    for first in ("9", "1", "invite dan"):
        env.reset()
        say(env, first, "0", "2")
    env.reset()
    say(env, "9")
    env.reset()
    found = env.statistics
    assert (found.episodes, found.steps) == (3, 3.0), "an episode that was broken off does not count"
    assert found.returns == {"ann": 0.5, "bob": 0.0, "cat": 2.0, "dan": 4.0}
    assert found.turns == {"ann": 1.0, "bob": 1.0, "cat": 1.0, "dan": 0.0}
    assert 0 < found.seconds < 1
    assert from_json(to_json(found), Statistics) == found


def test_statistics_see_rewards_where_they_stand() -> None:
    inside, outside = EpisodeStatistics(TimeLimit(Inn(), 1)), EpisodeStatistics
    env = outside(RewardScale(inside, 2.0))
    env.reset()
    *_, infos = say(env, "3")
    assert infos["ann"]["episode"]["return"] == env.statistics.returns["ann"] == 6.0
    assert inside.statistics.returns["ann"] == 3.0


@pytest.mark.parametrize("wrong", [0, -1, 1.5, None], ids=str)
def test_a_window_is_a_number_of_episodes(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="window is a number of episodes"):
        EpisodeStatistics(Inn(), wrong)


# RecordEpisodes


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


def test_infos_that_are_no_plain_data_are_told(tmp_path: Path) -> None:
    env = RecordEpisodes(
        one_agent(_process_actions=lambda self, actions: self.infos["a"].update(x={1}, end=1)), tmp_path
    )
    env.reset()
    say(env, "hello")
    with pytest.raises(RecordError, match="not plain data"):
        env.reset()
    env.reset()
    assert env.acting == ("a",)


# ShowHistory


class Model:
    """Answers with what it was shown, in short, and remembers it."""

    name = "scripted"

    def __init__(self) -> None:
        self.shown: list[list[Any]] = []

    async def complete(self, messages: Sequence[Any], sampling: Any, seed: int, tools: Any = ()) -> Response:
        await asyncio.sleep(0)
        self.shown.append(list(messages))
        return Response(f"{len(messages)}")


@every_env
@pytest.mark.parametrize("view", ["chat", "latest", "bare", "observations", "transcript", "window:2"])
def test_a_loop_sees_what_a_model_would(make: Callable[[], MultiAgentEnv], view: str) -> None:
    """What an agent with this view shows its model is what the wrapper shows, as one text."""
    model = Model()
    (episode,) = collect(make, [Job(5, LLMPolicy(model, marl_gem.views.view(view)))])
    assert not episode.error
    texts = {agent: [turn.response.text for turn in episode.turns_of(agent)] for agent in episode.returns}
    env = ShowHistory(make(), view)
    observations, _ = env.reset(seed=5)
    shown = []
    while not env.done:
        shown += observations.values()
        observations, *_, infos = env.step({agent: texts[agent].pop(0) for agent in env.acting})
        for agent, info in infos.items():
            assert info.get("final_observation", env.observe(agent)) == env.observe(agent)
    assert [*map(plain, model.shown)] == shown
    assert [*map(tuple, texts.values())] == [()] * len(texts)


def test_the_whole_history_stands_in_one_text() -> None:
    env = ShowHistory(Inn())
    observations, _ = env.reset(seed=1, options={"inn": "Swan"})
    opened = env.unwrapped.observe("ann").removeprefix("ann")
    assert observations == {"ann": f"You are ann, a guest.\n\nann{opened}"}
    (now,) = say(env, "3", "hm", "banish bob")[0].values()
    heard = env.unwrapped.observe("ann")
    assert now == f"You are ann, a guest.\n\nann{opened}\n\nYour answer: 3\n\n{heard}"
    assert env.observe("bob").endswith(f"Your answer: hm\n\nbob{heard[3:]}")
    assert env.role("ann") == Role(tools=(ToolSpec("ring"),)), "the instructions stand in the text"
    observations, _ = env.reset(seed=1, options={"inn": "Swan"})
    assert observations == {"ann": f"You are ann, a guest.\n\nann{opened}"}


def test_content_parts_stay_and_a_template_makes_what_it_likes() -> None:
    env = ShowHistory(Race(), chat)
    env.reset(seed=1)
    (left, _) = say(env, "slow")[0].values()
    assert [part.get("text") or part["url"] for part in left] == [
        "You have run 0.",
        "data:,0",
        "Your answer: slow",
        "You have run 1.",
        "data:,1",
    ]
    as_chat = ShowHistory(Inn(), "chat", as_json)
    as_chat.reset(seed=1)
    say(as_chat, "a", "b", "c")
    assert [message["role"] for message in json.loads(str(as_chat.observe("ann")))] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    counted = ShowHistory(Inn(), "chat", lambda messages: str(len(messages)))
    assert counted.reset()[0] == {"ann": "2"}


def test_the_whole_answer_is_remembered_where_the_env_is_given_a_part() -> None:
    env = ShowHistory(ParseAction(MapObservation(TimeLimit(Inn(), 9), str.upper), boxed()), "transcript")
    env.reset(seed=1)
    say(env, r"I am kind: \boxed{tip bob}", "hm", "hm")
    assert env.returns["bob"] == 2.0
    text = str(env.observe("ann"))
    assert r"Your answer: I am kind: \boxed{tip bob}" in text and "ANN HEARS: THE CROWN OPENS" in text


def test_a_model_that_sums_up_is_waited_for() -> None:
    writer = Model()
    env = ShowHistory(Inn(), summary(summarizer(writer), keep=1, every=1))  # type: ignore[arg-type]
    assert env.blocking and not ShowHistory(Inn()).blocking
    env.reset(seed=1)
    say(env, "3", "4", "5", "6")
    text = env.observe("ann")
    assert "What came before, in short:\n2" in str(text)
    asked = len(writer.shown)
    assert env.observe("ann") == text and env.fork().observe("ann") == text
    assert len(writer.shown) == asked == 3, "nothing is summed up twice"


class OneLoopModel(Model):
    """Minds being used in two event loops at once, as models do that hold connections."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[Any] = []
        self.most = 0

    async def complete(self, messages: Sequence[Any], sampling: Any, seed: int, tools: Any = ()) -> Response:
        loop = asyncio.get_running_loop()
        self.loops.append(loop)
        self.most = max(self.most, len(self.loops))
        assert set(self.loops) == {loop}
        await asyncio.sleep(0.002)
        self.loops.remove(loop)
        return Response(f"{len(messages)}")


def test_rollouts_wait_in_threads() -> None:
    def make() -> MultiAgentEnv:
        return ShowHistory(TimeLimit(Inn(), 12), summary(summarizer(writer), keep=1, every=1))  # type: ignore[arg-type]

    writer = OneLoopModel()
    script = ScriptedPolicy(lambda observation, info: "3" if "in short" in str(observation) else "0")
    episodes = collect(make, [Job(seed, script) for seed in range(20)], concurrency=8)
    assert [episode.error for episode in episodes] == [None] * 20
    assert {episode.returns["ann"] for episode in episodes} == {9.0}
    assert writer.most > 1 and not any("history" in thread.name for thread in threading.enumerate())


def test_within_an_event_loop_waiting_is_refused_and_nothing_has_changed() -> None:
    env = ShowHistory(Inn(), summary(summarizer(Model()), keep=1, every=1))  # type: ignore[arg-type]

    async def work() -> None:
        with pytest.raises(ConfigError, match=r"would block the event loop.*asyncio\.to_thread.*LLMPolicy"):
            env.reset(seed=1)
        await asyncio.to_thread(env.reset, seed=1)
        before = state(env)
        for call in (lambda: say(env, "3"), lambda: env.observe("ann"), env.reset):
            with pytest.raises(ConfigError, match="would block"):
                call()
        assert state(env) == before
        await asyncio.to_thread(say, env, "3")
        sync = ShowHistory(Inn(), summary(lambda text: "short", 1, 1))
        sync.reset()
        say(sync, "3", "4", "5", "6")

    asyncio.run(work())


def test_a_view_that_fails_is_told() -> None:
    def short(role: Role, history: Any) -> Any:
        if len(history) > 1:
            raise LookupError("too long")
        return chat(role, history)

    env = ShowHistory(Inn(), short)
    env.reset(seed=3)
    say(env, "a", "b")
    with pytest.raises(ScenarioFault, match=r"ShowHistory\.observation raised LookupError at step 3 .*too long"):
        say(env, "c")
    with pytest.raises(EpisodeOver):
        say(env, "d")
    env.reset(seed=3)
    say(env, "a", "b")

    async def away(text: str) -> str:
        raise LLMError("no answer")

    env = ShowHistory(Inn(), summary(away, 1, 1))
    env.reset(seed=3)
    with pytest.raises(LLMError, match="no answer"):
        say(env, "a", "b", "c")


def test_views_and_templates_that_are_none() -> None:
    with pytest.raises(ConfigError, match="no view 'wide'"):
        ShowHistory(Inn(), "wide")
    for wrong in ((7,), (None,), ("chat", "plain")):
        with pytest.raises(ConfigError, match="functions, not"):
            ShowHistory(Inn(), *wrong)  # type: ignore[arg-type]


# In rollouts


@every_env
def test_a_rollout_over_a_stack(make: Callable[[], MultiAgentEnv]) -> None:
    def wrapped() -> MultiAgentEnv:
        env = RewardScale(StepPenalty(TimeLimit(ParseAction(make(), tagged()), 6), 0.5), 2.0)
        return ShowHistory(EpisodeStatistics(env), "window:2")

    policy = ScriptedPolicy(lambda observation, info: f"Hm. <answer>{len(str(observation)) % 10}</answer>")
    for episode in collect(wrapped, [Job(seed, policy) for seed in range(6)]):
        assert not episode.error and len(episode.turns) <= 12
        assert all(turn.info["parsed"] == turn.response.text[12:-9] for turn in episode.turns)
        for agent, total in episode.returns.items():
            turns = episode.turns_of(agent)
            assert sum(turn.reward for turn in turns) == pytest.approx(total) or not turns
            assert episode.final_infos[agent]["episode"]["turns"] == len(turns)
        assert from_json(to_json(episode), Episode) == episode


def test_a_late_reward_is_credited_as_it_was_changed() -> None:
    texts = {"ann": ["leave"], "bob": ["tip ann", "tip ann", "leave"], "cat": ["3", "leave"]}
    seats = {agent: ScriptedPolicy(lines) for agent, lines in texts.items()}
    (episode,) = collect(lambda: StepPenalty(RewardClip(Inn(), -1, 1), 0.25), [Job(0, seats)])
    assert episode.returns == {"ann": 1.75, "bob": -0.75, "cat": 0.5}
    assert [turn.reward for turn in episode.turns] == [1.75, -0.25, 0.75, -0.25, -0.25, -0.25]


def test_what_fails_in_a_wrapper_is_told_in_the_episode() -> None:
    policy = ScriptedPolicy(lambda observation, info: "hello")
    (episode,) = collect(lambda: ParseAction(Inn(), int), [Job(0, policy)])  # type: ignore[arg-type]
    assert isinstance(episode.error, EpisodeError)
    assert (episode.error.origin, episode.error.type) == ("env", "ScenarioFault")
    assert "ParseAction.parser raised ValueError" in episode.error.message
