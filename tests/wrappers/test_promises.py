"""Wrappers keep every promise of the contract, forward what they do not change, and state their order."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marl_gem
from marl_gem import MultiAgentEnv, ParallelSelector, VectorEnv
from marl_gem.errors import ConfigError, EpisodeOver, InvalidAction, InvalidOption
from marl_gem.policies import ScriptedPolicy
from marl_gem.rollout import Job, collect
from marl_gem.testing import CHECKS, Plan, check_env
from marl_gem.types import Episode, EpisodeError, from_json, to_json
from marl_gem.wrappers import (
    EpisodeStatistics,
    MapObservation,
    ParseAction,
    RecordEpisodes,
    RewardClip,
    RewardScale,
    ShowHistory,
    StepPenalty,
    TimeLimit,
    Wrapper,
    boxed,
    tagged,
)
from tests.toys import full_state
from tests.wrappers.wrapped import (
    BRIEF,
    ENVS,
    FOLDER,
    NAMES,
    WRAPPERS,
    WRONG,
    Inn,
    every_env,
    every_wrapper,
    play,
    say,
)

# All promises, through every wrapper and through stacks of them


@every_env
@every_wrapper
def test_every_promise_holds_through_a_wrapper(
    make: Callable[[], MultiAgentEnv], wrap: Callable[[MultiAgentEnv], MultiAgentEnv]
) -> None:
    report = check_env(lambda: wrap(make()), BRIEF, only=[name for name in CHECKS if name != "processes"])
    report.raise_if_failed()
    skipped = {outcome.check for outcome in report.results if outcome.status == "skipped"}
    assert not skipped - {"legal_actions", "messages"}


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
    before = full_state(env)
    for wrong in WRONG:
        with pytest.raises(InvalidAction):
            env.step(wrong(env.acting))
        assert full_state(env) == before


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
    assert env.scenario == cast(Any, env).unwrapped.scenario == "wrapped:Inn-v0"
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
    before = full_state(env)
    with pytest.raises(InvalidOption):
        env.reset(seed=-1)
    assert full_state(env) == before
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
    ("tools", "record", r"ToolEnv changes the observations.*RecordEpisodes\(ToolEnv\(Inn\)\)"),
    ("tools", "history", r"ToolEnv changes the observations.*ShowHistory\(ToolEnv\(Inn\)\)"),
    ("reward", "record", r"RewardEnv changes the rewards.*RecordEpisodes\(RewardEnv\(Inn\)\)"),
    ("limit", "reward", r"TimeLimit changes the ending.*RewardEnv\(TimeLimit\(Inn\)\)"),
    ("boxed", "tools", r"ParseAction changes the actions.*ToolEnv\(ParseAction\(Inn\)\)"),
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
    tools = {"tools", "tools of some"}
    refused |= {(parser, seen) for parser in ("boxed", "tagged", "matching") for seen in (*views, *tools, "record")}
    refused |= {(outer, inner) for outer in tools for inner in (*views, "record")}
    refused |= {("map", "summary"), *((one, other) for one in views for other in views)}
    assert fits(outer, inner) == ((outer, inner) not in refused)
    assert fits(outer, inner) or fits(inner, outer) or {outer, inner} <= views


def test_the_order_is_told_for_the_whole_stack() -> None:
    env = ShowHistory(RecordEpisodes(RewardClip(EpisodeStatistics(TimeLimit(Inn(), 3))), FOLDER.name))
    order = "ShowHistory(RecordEpisodes(ParseAction(RewardClip(EpisodeStatistics(TimeLimit(Inn))))))"
    with pytest.raises(ConfigError) as caught:
        ParseAction(env, boxed())
    assert str(caught.value).endswith(f"around RecordEpisodes. The right order is {order}")


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
