"""A vector of envs against the same envs played one by one by hand, and what it does where things go wrong."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marl_gem
from marl_gem import MultiAgentEnv, ParallelSelector, SequentialSelector
from marl_gem.errors import ConfigError, EnvError, EpisodeOver, InvalidAction, InvalidOption
from marl_gem.seeding import derive_seed
from marl_gem.types import EpisodeError, from_json, to_json
from marl_gem.vector import Actions, Autoreset, Make, Result, VectorEnv

AUTORESETS: tuple[Autoreset, ...] = ("next_step", "same_step", "off")
every_autoreset = pytest.mark.parametrize("autoreset", AUTORESETS)
sync_and_async = pytest.mark.parametrize("workers", [0, 2, 64], ids=lambda workers: f"{workers} workers")

# The scenarios


class Table(MultiAgentEnv):
    """Guests say numbers in turn and roll; at a five or six a guest leaves, at a one another may come."""

    possible_agents = ("ann", "bob")
    selector = SequentialSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.house = options.get("house", 0)
        super()._reset({name: value for name, value in options.items() if name != "house"})
        self.rolled = self.rng.randint(1, 6)

    def observe(self, agent: str) -> str:
        return f"{agent}: {self.rolled} after step {self.steps}"

    def legal_actions(self, agent: str) -> list[str]:
        return [str(self.rolled), "0"]

    def _process_actions(self, actions: dict[str, str]) -> None:
        ((agent, text),) = actions.items()
        self.rolled = self.rng.randint(1, 6)
        self.rewards = {agent: (int(text) - self.house) / 3}
        self.infos = {agent: {"said": text}}
        self.terminations = {agent: self.rolled >= 5}
        if self.rolled == 1 and len(self.returns) < 4:
            self.add_agent(f"guest {len(self.returns)}")


class SlowTable(Table):
    """Takes its time: another one every time, which no seed decides."""

    blocking = True

    def _reset(self, options: Mapping[str, Any]) -> None:
        time.sleep(random.choice([0, 0, 0.001, 0.004]))
        super()._reset(options)

    def _process_actions(self, actions: dict[str, str]) -> None:
        time.sleep(random.choice([0, 0, 0.001, 0.004]))
        super()._process_actions(actions)


class Fixed(MultiAgentEnv):
    """An episode has two steps of both agents; a text that is a number is the reward of whoever says it."""

    possible_agents = ("a", "b")
    selector = ParallelSelector()
    closed = 0

    def observe(self, agent: str) -> str:
        return f"{agent} at {self.steps}"

    def _process_actions(self, actions: dict[str, str]) -> None:
        for agent, text in actions.items():
            if text == "break":
                raise RuntimeError("broken")
            if text == "exit":
                sys.exit("enough")
            if text == "interrupt":
                raise KeyboardInterrupt
            self.rewards[agent] = float(text)
        self.terminations = dict.fromkeys(self.agents, self.steps == 2)

    def close(self) -> None:
        self.closed += 1


class Gated(Fixed):
    """A step of `a` that says `wait` lasts until the gate opens."""

    blocking = True

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()

    def _process_actions(self, actions: dict[str, str]) -> None:
        if actions["a"] == "wait":
            self.entered.set()
            assert self.gate.wait(10)
        super()._process_actions({agent: text.replace("wait", "7") for agent, text in actions.items()})


def each(value: Any) -> dict[str, Any]:
    return {"a": value, "b": value}


ONE = each("1")


class Boom(Exception):
    pass


def faulty(make: Make, faults: set[tuple[str, int]]) -> Make:
    """Makes envs that fail at their n-th make, reset or step, counted over all envs made by it."""
    counts = {what: itertools.count() for what in ("make", "reset", "step")}

    def maybe_fail(what: str) -> None:
        number = next(counts[what])
        if (what, number) in faults:
            raise Boom(f"{what} {number}")

    def make_faulty() -> MultiAgentEnv:
        maybe_fail("make")
        env = make()
        reset, process = env._reset, env._process_actions

        def faulty_reset(options: Mapping[str, Any]) -> None:
            maybe_fail("reset")
            reset(options)

        def faulty_process(actions: dict[str, str]) -> None:
            maybe_fail("step")
            process(actions)

        env._reset, env._process_actions = faulty_reset, faulty_process  # type: ignore[method-assign]
        return env

    return make_faulty


# One env played by hand


class ByHand:
    """What env `index` of a vector should play, in a plain loop's few lines."""

    def __init__(self, index: int, make: Make, seed: int, autoreset: Autoreset) -> None:
        self.index, self.make, self.seed, self.autoreset = index, make, seed, autoreset
        self.episode, self.own_seed = -1, None
        self.options: Mapping[str, Any] = {}
        self.observations: Mapping[str, Any] = {}
        try:
            self.env: MultiAgentEnv | None = make()
        except Boom:
            self.env = None

    def reset(self, seed: int | None, own_seed: int | None, options: Mapping[str, Any]) -> Result:
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.options = options
        return self.begin(own_seed)

    def step(self, actions: Actions) -> Result:
        if not self.observations:
            return self.begin()
        assert self.env
        result = self.attempt(lambda env: env.step(actions))
        if not (result.done and self.autoreset == "same_step"):
            return result
        new = self.begin()
        error = result.error or new.error
        return Result(
            **{name: getattr(new, name) for name in ("index", "episode", "seed", "observations", "infos")},
            **{name: getattr(result, name) for name in ("rewards", "terminations", "truncations", "returns", "done")},
            error=error,
            final=result,
        )

    def begin(self, own_seed: int | None = None) -> Result:
        self.episode += 1
        self.episode_seed = derive_seed(self.seed, self.index, self.episode) if own_seed is None else own_seed

        def reset(env: MultiAgentEnv) -> Any:
            observations, infos = env.reset(self.episode_seed, self.options)
            no = dict.fromkeys(infos, False)
            return observations, dict.fromkeys(infos, 0.0), no, no, infos

        return self.attempt(reset)

    def attempt(self, what: Callable[[MultiAgentEnv], Any]) -> Result:
        place = (self.index, self.episode, self.episode_seed)
        try:
            self.env = self.env or self.make()
            told = what(self.env)
        except Exception as error:
            self.env, self.observations = None, {}
            return Result(*place, done=True, error=EpisodeError("env", type(error).__name__, str(error)))
        self.observations = told[0]
        return Result(*place, *told, dict(self.env.returns), self.env.done)

    @property
    def may_step(self) -> bool:
        return bool(self.observations) or (self.autoreset != "off" and self.episode >= 0)


def answer(observations: Mapping[str, Any], dice: random.Random) -> dict[str, str]:
    return {agent: str(dice.randint(0, 9)) for agent in observations}


# A vector is its envs, played by hand

faults = st.sets(st.tuples(st.sampled_from(["make", "reset", "step"]), st.integers(1, 12)), max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    plan=st.lists(st.tuples(st.just(Table), faults) | st.tuples(st.just(SlowTable), faults), min_size=1, max_size=5),
    seed=st.integers(0, 3),
    autoreset=st.sampled_from(AUTORESETS),
    workers=st.sampled_from([None, 0, 1, 3]),
    moves=st.lists(st.sampled_from(["step", "send", "recv", "reset"]), min_size=5, max_size=40),
    dice=st.integers(0, 2**32).map(random.Random),  # not randoms(): how much is drawn depends on who is faster
)
def test_a_vector_plays_what_its_envs_play_alone(
    plan: list[tuple[Make, set[tuple[str, int]]]],
    seed: int,
    autoreset: Autoreset,
    workers: int | None,
    moves: list[str],
    dice: random.Random,
) -> None:
    models = [ByHand(i, faulty(make, wrong), seed, autoreset) for i, (make, wrong) in enumerate(plan)]
    makes = [faulty(make, wrong) for make, wrong in plan]
    expected: dict[int, Result] = {}

    def some(indices: list[int]) -> list[int]:
        return dice.sample(indices, dice.randint(0, len(indices)))

    def actions() -> dict[int, dict[str, str]]:
        free = [i for i, model in enumerate(models) if i not in expected and model.may_step]
        return {i: answer(models[i].observations, dice) for i in some(free)}

    with VectorEnv(makes, seed=seed, autoreset=autoreset, workers=workers) as envs:
        assert envs.reset() == [model.reset(None, None, {}) for model in models]
        for move in moves:
            assert envs.outstanding == sorted(expected)
            if move == "step":
                todo = actions()
                assert envs.step(todo) == [models[i].step(todo[i]) for i in sorted(todo)]
            elif move == "send":
                todo = actions()
                envs.send(todo)
                expected |= {i: models[i].step(given) for i, given in todo.items()}
            elif move == "recv":
                at_least = dice.randint(0, len(expected))
                results = envs.recv(at_least, timeout=dice.choice([None, 5.0]))
                assert len(results) >= at_least
                assert [result.index for result in results] == sorted(result.index for result in results)
                assert results == [expected.pop(result.index) for result in results]
            else:
                chosen, options = some([*range(len(models))]), dice.choice([{}, {"house": 2}])
                base = dice.choice([None, 5])
                own = {i: dice.randrange(99) for i in chosen} if dice.random() < 0.3 else {}
                if own:
                    results = envs.reset(own, options)
                else:
                    results = envs.reset(base, options, only=chosen)
                assert results == [models[i].reset(None if own else base, own.get(i), options) for i in sorted(chosen)]
                expected = {i: result for i, result in expected.items() if i not in chosen}
        assert envs.recv(len(expected)) == [expected[i] for i in sorted(expected)]


HAS_TEXTARENA = importlib.util.find_spec("textarena") is not None


@every_autoreset
@pytest.mark.parametrize(
    "scenario",
    [
        "game:KuhnPoker-v0",
        pytest.param("ta:TicTacToe-v0", marks=pytest.mark.skipif(not HAS_TEXTARENA, reason="extra")),
    ],
)
def test_registered_scenarios_play_the_same_in_threads_and_out_of_them(scenario: str, autoreset: Autoreset) -> None:
    def play(workers: int) -> dict[int, list[str]]:
        """Each env's results, whatever the order in which they come."""
        told: dict[int, list[str]] = {index: [] for index in range(4)}
        dice = {index: random.Random(index) for index in told}
        with VectorEnv(lambda: marl_gem.make(scenario), 4, seed=3, autoreset=autoreset, workers=workers) as envs:
            results = envs.reset()
            while results:
                for result in results:
                    told[result.index].append(to_json(result))
                envs.send(
                    {
                        result.index: {
                            agent: dice[result.index].choice(result.infos[agent]["legal_actions"])
                            for agent in result.observations
                        }
                        for result in results
                        if len(told[result.index]) < 30
                        if result.observations or autoreset == "next_step"
                    }
                )
                results = envs.recv() if envs.outstanding else []
        return told

    alone = play(workers=0)
    assert all(len(lines) >= 3 for lines in alone.values())
    assert play(workers=4) == alone == play(workers=2)


def test_what_an_env_plays_does_not_depend_on_how_many_there_are() -> None:
    def first(count: int) -> list[list[Result]]:
        with VectorEnv(Table, count, seed=11) as envs:
            told = [envs.reset()]
            for _ in range(30):
                told.append(envs.step([dict.fromkeys(result.observations, "3") for result in told[-1]]))
        return [results[:2] for results in told]

    assert first(2) == first(3) == first(20)
    assert min(result.episode for result in first(2)[-1]) >= 1


def test_seeds() -> None:
    with VectorEnv(Fixed, 2, seed=4) as envs:
        assert [result.seed for result in envs.reset()] == [derive_seed(4, 0, 0), derive_seed(4, 1, 0)]
        assert [result.seed for result in envs.reset()] == [derive_seed(4, 0, 1), derive_seed(4, 1, 1)]
        assert [result.seed for result in envs.reset({1: 99})] == [99]
        assert [result.seed for result in envs.reset(only=[1, 1])] == [derive_seed(4, 1, 3)]
        assert [result.seed for result in envs.reset(5, only=[0])] == [derive_seed(5, 0, 0)]
        assert envs.seed == 4
        assert [result.seed for result in envs.reset()] == [derive_seed(5, 0, 1), derive_seed(4, 1, 4)]
        assert [result.episode for result in envs.reset(6)] == [0, 0]
        assert envs.seed == 6


def test_a_list_of_seeds_is_one_for_each_env() -> None:
    with VectorEnv(Table, 2, seed=0) as envs:
        assert [result.seed for result in envs.reset(seed=[5, 7])] == [5, 7]
        assert envs.reset(seed={1: 7})[0].observations == envs.reset(seed=[5, 7])[1].observations


def test_without_a_seed_one_is_drawn_and_told() -> None:
    with VectorEnv(Fixed, seed=None) as envs, VectorEnv(Fixed) as others:
        assert envs.seed != others.seed
        assert envs.reset()[0].seed == derive_seed(envs.seed, 0, 0)


# Autoreset


def test_the_next_step_begins_the_next_episode() -> None:
    with VectorEnv(Fixed, seed=0) as envs:
        envs.reset()
        envs.step([each("1")])
        (last,) = envs.step([{"a": "2", "b": "0.5"}])
        assert last.done and last.episode == 0 and last.observations == {} and last.final is None
        assert last.terminations == {"a": True, "b": True} and last.returns == {"a": 3.0, "b": 1.5}
        assert last.infos["a"]["final_observation"] == "a at 2"
        (begun,) = envs.step([{"nobody": "reads this"}])
        assert begun == Result(
            index=0,
            episode=1,
            seed=derive_seed(0, 0, 1),
            observations={"a": "a at 0", "b": "b at 0"},
            rewards={"a": 0.0, "b": 0.0},
            terminations={"a": False, "b": False},
            truncations={"a": False, "b": False},
            infos={"a": {}, "b": {}},
            returns={"a": 0.0, "b": 0.0},
        )


def test_the_same_step_begins_the_next_episode() -> None:
    with VectorEnv(Fixed, seed=0, autoreset="same_step") as envs:
        envs.reset()
        envs.step([ONE])
        (result,) = envs.step([each("2")])
        assert result.done and result.rewards == each(2.0) and result.returns == each(3.0)
        assert result.terminations == each(True)
        assert result.episode == 1 and result.seed == derive_seed(0, 0, 1)
        assert result.observations == {"a": "a at 0", "b": "b at 0"} and result.infos == each({})
        final = result.final
        assert final and final.episode == 0 and final.seed == derive_seed(0, 0, 0) and final.observations == {}
        assert final.infos["b"]["final_observation"] == "b at 2" and final.returns == each(3.0)
        assert from_json(to_json(result), Result) == result
        (following,) = envs.step([ONE])
        assert following.final is None and not following.done and following.returns == each(1.0)


def test_without_autoreset_an_ended_env_waits_for_its_reset() -> None:
    with VectorEnv(Fixed, 2, autoreset="off") as envs:
        envs.reset()
        envs.step({1: ONE})
        assert envs.step([ONE, ONE])[1].done
        with pytest.raises(EpisodeOver, match=r"env 1 is over.*reset\(only=\[1\]\)"):
            envs.step([ONE, ONE])
        assert envs[0].steps == 1
        (begun,) = envs.reset(only=[1])
        assert begun.index == 1 and begun.episode == 1
        assert [result.done for result in envs.step([ONE, ONE])] == [True, False]


# What the caller does wrong is raised, and nothing has changed


@sync_and_async
@pytest.mark.parametrize(
    ("wrong", "error", "complaint"),
    [
        ([ONE, ONE, {"a": "1"}], InvalidAction, r"env 2: .*missing \['b'\]"),
        ([ONE, ONE, {"a": "1", "b": "1", "c": "1"}], InvalidAction, r"env 2: .*\['c'\]"),
        ([ONE, {"a": "1", "b": 1}, ONE], InvalidAction, r"env 1: .*must be text"),
        ([ONE, None, ONE], InvalidAction, r"env 1: .*must be a dict"),
        ([ONE, ONE], InvalidAction, r"2 dicts of actions for 3 envs"),
        ({0: ONE, 1: {}}, InvalidAction, r"env 1: .*missing"),
        ({0: ONE, 3: ONE}, EnvError, r"no env 3; they are numbered from 0 to 2"),
        ({0: ONE, -1: ONE}, EnvError, r"no env -1"),
        ({0: ONE, 0.5: ONE}, EnvError, r"no env 0.5"),
        (ONE, EnvError, r"no env 'a'"),
    ],
)
def test_wrong_actions(wrong: Any, error: type[Exception], complaint: str, workers: int) -> None:
    with VectorEnv(Fixed, 3, workers=workers) as envs:
        envs.reset()
        for move in (envs.step, envs.send):
            with pytest.raises(error, match=complaint):
                move(wrong)
        assert envs.outstanding == [] and [env.steps for env in envs] == [0, 0, 0]
        assert [result.returns for result in envs.step([ONE] * 3)] == [each(1.0)] * 3


def test_one_step_at_a_time() -> None:
    with VectorEnv(Gated, 3) as envs:
        envs.reset()
        envs.send({1: each("wait")})
        for move in (envs.step, envs.send):
            with pytest.raises(EnvError, match=r"last step of env 1 is outstanding; recv"):
                move([ONE, ONE, ONE])
        assert [envs[0].steps, envs[2].steps] == [0, 0]
        assert [result.index for result in envs.step({0: ONE, 2: ONE})] == [0, 2]
        gate(envs, 1).set()
        assert [result.index for result in envs.recv()] == [1]
        with pytest.raises(EnvError, match=r"wait for 1 results while 0 steps are outstanding"):
            envs.recv()
        assert envs.recv(at_least=0) == []


def gate(envs: VectorEnv, index: int) -> threading.Event:
    env = envs[index]
    assert isinstance(env, Gated)
    return env.gate


@sync_and_async
def test_a_result_that_was_not_read_is_outstanding_still(workers: int) -> None:
    with VectorEnv(Fixed, 2, workers=workers) as envs:
        envs.reset()
        envs.send([ONE, ONE])
        time.sleep(0.02)
        with pytest.raises(EnvError, match="outstanding"):
            envs.send({0: ONE})
        with pytest.raises(EnvError, match="3 results"):
            envs.recv(3)
        assert len(envs.recv(2)) == 2


@sync_and_async
def test_a_reset_drops_what_is_outstanding(workers: int) -> None:
    with VectorEnv(SlowTable, 3, seed=1, workers=workers) as envs:
        before = envs.reset()
        envs.send([answer(result.observations, random.Random(0)) for result in before])
        assert envs.reset(seed=1, only=[0, 2]) == [before[0], before[2]]
        assert envs.outstanding == [1]
        assert [result.index for result in envs.recv()] == [1]


@every_autoreset
def test_a_vector_is_reset_before_it_steps(autoreset: Autoreset) -> None:
    with VectorEnv(Fixed, 2, autoreset=autoreset) as envs:
        envs.reset(only=[0])
        with pytest.raises(EpisodeOver, match="env 1 was never reset"):
            envs.step([ONE, ONE])
        assert envs[0].steps == 0


@pytest.mark.parametrize(
    ("wrong", "error", "complaint"),
    [
        ({"seed": -1}, InvalidOption, "not -1"),
        ({"seed": True}, InvalidOption, "not True"),
        ({"seed": 1.5}, InvalidOption, r"not 1\.5"),
        ({"seed": {0: 3, 1: "x"}}, InvalidOption, "not 'x'"),
        ({"seed": {0: 3}, "only": [0]}, InvalidOption, "leave out `only`"),
        ({"seed": {0: 3, 2: 3}}, EnvError, "no env 2"),
        ({"seed": [3, 4, 5]}, InvalidOption, "3 seeds for 2 envs"),
        ({"seed": [3, -1]}, InvalidOption, "not -1"),
        ({"only": [0, 7]}, EnvError, "no env 7"),
        ({"only": ["a", 0]}, EnvError, "no env 'a'"),
    ],
)
def test_wrong_resets(wrong: dict[str, Any], error: type[Exception], complaint: str) -> None:
    with VectorEnv(Fixed, 2, seed=0) as envs:
        envs.reset()
        envs.step([ONE, ONE])
        with pytest.raises(error, match=complaint):
            envs.reset(**wrong)
        assert [result.returns["a"] for result in envs.step([ONE, ONE])] == [2.0, 2.0]


def test_options_stay_with_the_env_until_its_next_reset() -> None:
    given = {"house": 5}
    with VectorEnv(Table, 2, seed=0) as envs:
        envs.reset(options=given, only=[0])
        envs.reset(only=[1])
        given["house"] = 6
        results = envs.step([dict.fromkeys(env.acting, "0") for env in envs])
        while any(result.episode < 2 for result in results):
            results = envs.step([dict.fromkeys(result.observations, "0") for result in results])
        assert [env.house for env in envs if isinstance(env, Table)] == [5, 0]
        envs.reset()
        assert [env.house for env in envs if isinstance(env, Table)] == [0, 0]


@sync_and_async
def test_options_that_a_scenario_does_not_take_are_the_caller_s_mistake(workers: int) -> None:
    with VectorEnv([Fixed, Fixed], workers=workers) as envs:
        with pytest.raises(InvalidOption, match=r"env 0: Fixed takes no reset options.*size"):
            envs.reset(options={"size": 3})
        assert all(result.error is None for result in envs.reset())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([],), "no envs"),
        ((Fixed, 0), "no envs"),
        ((Fixed, -1), "no envs"),
        ((Fixed, 2.0), r"copies is a whole number from 1 up, not 2\.0"),
        (("game:KuhnPoker-v0", 2), r"env 0 is to be made by 'game:KuhnPoker-v0'"),
        ((64,), "env 0 is to be made by 64"),
        (((Fixed, 64),), "env 1 is to be made by 64"),
        ((["game:KuhnPoker-v0"],), r"env 0 is to be made by 'game:KuhnPoker-v0'.*marl_gem\.make"),
        (([Fixed, lambda: None],), "env 1 is no MultiAgentEnv"),
        (([Fixed, Gated, Table, Table],), r"env 2 has the agents \['ann', 'bob'\], those before it \['a', 'b'\]"),
    ],
)
def test_vectors_that_make_no_sense(arguments: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        VectorEnv(*arguments)


@pytest.mark.parametrize("settings", [{"autoreset": "never"}, {"workers": -1}, {"workers": 1.5}])
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=str(next(iter(settings.values())))):
        VectorEnv(Fixed, **settings)


def test_one_env_twice() -> None:
    env = Fixed()
    with pytest.raises(ConfigError, match="env 1 is the same object as env 0"):
        VectorEnv(lambda: env, 3)


def test_envs_are_closed_if_the_vector_cannot_be_made() -> None:
    made: list[Fixed] = []

    def make() -> Fixed:
        made.append(Fixed())
        return made[-1]

    with pytest.raises(ConfigError):
        VectorEnv([make, make, Table])
    assert [env.closed for env in made] == [1, 1]


# What an env fails at is told, and the others go on


@sync_and_async
def test_a_step_that_fails(workers: int) -> None:
    made: list[Fixed] = []

    def make() -> Fixed:
        made.append(Fixed())
        return made[-1]

    with VectorEnv(make, 3, seed=0, workers=workers) as envs:
        envs.reset()
        results = envs.step([ONE, each("break"), ONE])
        assert [result.done for result in results] == [False, True, False]
        error = results[1].error
        assert error and error.origin == "env" and error.type == "ScenarioFault"
        assert "RuntimeError" in error.message and "broken" in error.message
        assert results[1] == Result(1, 0, derive_seed(0, 1, 0), done=True, error=error)
        results = envs.step([ONE, {}, ONE])
        assert [result.returns["a"] for result in results] == [2.0, 0.0, 2.0]
        assert results[1].episode == 1 and results[1].error is None
        assert envs[1] is made[3] and [env.closed for env in made] == [0, 1, 0, 0]
    assert [env.closed for env in made] == [1, 1, 1, 1]


def test_a_step_that_fails_with_autoreset_in_the_same_step() -> None:
    makes = [faulty(Fixed, {("step", 0), ("reset", 1)}), Fixed]
    with VectorEnv(makes, autoreset="same_step", seed=0) as envs:
        envs.reset()
        failed, fine = envs.step([ONE, ONE])
        assert fine.returns == each(1.0)
        assert failed.error and "step 0" in failed.error.message and failed.done and failed.observations == {}
        assert failed.final and failed.final.error == failed.error
        assert (failed.final.episode, failed.episode) == (0, 1)
        begun, _ = envs.step([{}, ONE])
        assert begun.episode == 2 and begun.observations and not begun.error and not begun.done


def test_a_step_that_fails_with_autoreset_off() -> None:
    with VectorEnv(Fixed, 2, autoreset="off") as envs:
        envs.reset()
        envs.step([each("break"), ONE])
        with pytest.raises(EpisodeOver, match="env 0 is over"):
            envs.step([ONE, ONE])
        assert envs.reset(only=[0])[0].error is None
        assert [result.error for result in envs.step([ONE, ONE])] == [None, None]


def test_envs_that_cannot_be_made_at_first() -> None:
    with VectorEnv([Fixed, faulty(Fixed, {("make", 0), ("make", 1)})], seed=0) as envs:
        assert len(envs) == 2
        with pytest.raises(EnvError, match="no env 1"):
            envs[1].role("a")
        results = envs.reset()
        assert results[0].error is None
        assert results[1].error == EpisodeError("env", "Boom", "make 1")
        assert [result.observations.keys() for result in envs.step([ONE, {}])] == [{"a", "b"}] * 2


def test_if_no_env_can_be_made_there_is_no_vector() -> None:
    with pytest.raises(Boom, match="make 0"):
        VectorEnv(faulty(Fixed, {("make", 0), ("make", 1)}), 2)


def test_an_env_made_anew_has_the_same_agents() -> None:
    kinds = iter([Fixed, Table, Fixed])
    with VectorEnv([Fixed, lambda: next(kinds)()]) as envs:
        envs.reset()
        envs.step([ONE, each("break")])
        error = envs.step([ONE, {}])[1].error
        assert error and error.type == "ConfigError" and "env 1 has the agents ['ann', 'bob']" in error.message
        assert envs.step([ONE, {}])[1].error is None


@sync_and_async
def test_a_system_exit_in_a_step_is_the_error_of_that_env_alone(workers: int) -> None:
    with VectorEnv(Fixed, 4, seed=0, workers=workers) as envs:
        envs.reset()
        results = envs.step([ONE, each("exit"), ONE, ONE])
        assert [result.error and (result.error.type, result.error.message) for result in results] == [
            None,
            ("SystemExit", "enough"),
            None,
            None,
        ]
        assert [result.returns for result in results] == [each(1.0), {}, each(1.0), each(1.0)]
        assert results[1].done and envs.outstanding == []
        results = envs.step([ONE, {}, ONE, ONE])
        assert [result.episode for result in results] == [0, 1, 0, 0]
        assert [result.error for result in results] == [None] * 4


@sync_and_async
def test_a_system_exit_reaches_recv_with_all_other_results(workers: int) -> None:
    with VectorEnv(Fixed, 4, seed=0, workers=workers) as envs:
        envs.reset()
        envs.send([ONE, each("exit"), ONE, ONE])
        results = envs.recv(at_least=4)
        assert [result.index for result in results] == [0, 1, 2, 3]
        assert [result.error.type if result.error else "" for result in results] == ["", "SystemExit", "", ""]
        assert envs.outstanding == []


@sync_and_async
@pytest.mark.parametrize("boundary", ["make", "reset"])
def test_a_system_exit_in_a_reset_is_the_error_of_that_env_alone(workers: int, boundary: str) -> None:
    class Quits(Fixed):
        exits = boundary == "make"

        def __init__(self) -> None:
            if Quits.exits:
                sys.exit("enough")

        def _reset(self, options: Mapping[str, Any]) -> None:
            if Quits.exits:
                sys.exit("enough")

    with VectorEnv([Fixed, Quits], seed=0, workers=workers) as envs:
        Quits.exits = True
        results = envs.reset()
        assert results[0].error is None
        assert results[1].error == EpisodeError("env", "SystemExit", "enough")
        Quits.exits = False
        assert [result.error for result in envs.step([ONE, {}])] == [None, None]


@sync_and_async
@pytest.mark.parametrize("move", ["step", "recv"])
def test_an_interrupt_in_a_step_is_raised_and_no_other_result_is_lost(move: str, workers: int) -> None:
    actions = [ONE, each("interrupt"), ONE, ONE]
    with VectorEnv(Fixed, 4, seed=0, workers=workers) as envs:
        envs.reset()
        with pytest.raises(KeyboardInterrupt):
            if move == "step":
                envs.step(actions)
            else:
                envs.send(actions)
                while envs.recv(timeout=5):
                    pass
        assert 1 not in envs.outstanding
        received = envs.recv(len(envs.outstanding)) if envs.outstanding else []
        assert all(result.returns == each(1.0) for result in received)
        begun = envs.step({1: {}})[0]
        assert begun.episode == 1 and begun.error is None
        # An env whose step had not begun is as it was; the others go on.
        assert [result.steps for result in envs] == ([1, 0, 0, 0] if workers == 0 else [1, 0, 1, 1])
        assert {result.index: result.error for result in envs.step([ONE, ONE, ONE, ONE])} == dict.fromkeys(range(4))


def test_an_env_that_cannot_be_closed_is_a_warning() -> None:
    made: list[Fixed] = []

    class Sticky(Fixed):
        def close(self) -> None:
            super().close()
            raise OSError("stuck")

    def make() -> Fixed:
        made.append(Sticky())
        return made[-1]

    envs = VectorEnv(make, 2)
    with pytest.warns(RuntimeWarning, match=r"Sticky: close\(\) raised OSError\('stuck'\)"):
        envs.close()
    assert [env.closed for env in made] == [1, 1]


# Threads


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("marl_gem-vector")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not threads())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "waited for 5 seconds in vain"
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("make", "workers", "most"), [(Fixed, None, 0), (Gated, 0, 0), (Gated, None, 6), (Fixed, 2, 2), (Gated, 2, 2)]
)
def test_how_many_threads_there_are(make: Make, workers: int | None, most: int) -> None:
    with VectorEnv(make, 6, workers=workers) as envs:
        envs.reset()
        envs.step([ONE] * 6)
        assert len(threads()) == most
    assert threads() == []


def test_threads_are_made_when_they_are_needed_and_used_again() -> None:
    with VectorEnv(Gated, 50) as envs:
        for index in range(50):
            envs.reset(only=[index])
        assert len(threads()) == 1
        envs.send({index: each("wait") for index in range(3)})
        envs.step({7: ONE})
        assert len(threads()) == 4
        for index in range(3):
            gate(envs, index).set()
        envs.recv(3)


def test_blocking_envs_step_side_by_side() -> None:
    meeting = threading.Barrier(8)

    class Meeting(Fixed):
        blocking = True

        def _process_actions(self, actions: dict[str, str]) -> None:
            meeting.wait(5)  # breaks unless all eight are here at the same time
            super()._process_actions(actions)

    with VectorEnv(Meeting, 8) as envs:
        envs.reset()
        assert [result.error for result in envs.step([ONE] * 8)] == [None] * 8


def test_a_slow_env_holds_up_nobody() -> None:
    with VectorEnv(Gated, 3) as envs:
        envs.reset()
        envs.send([each("wait"), ONE, ONE])
        assert [result.index for result in envs.recv(at_least=2)] == [1, 2]
        for _ in range(5):
            envs.send({1: ONE})
            assert [result.index for result in envs.recv()] == [1]
        assert envs.outstanding == [0]
        gate(envs, 0).set()
        assert envs.recv()[0].rewards == each(7.0)


def test_actions_may_be_changed_once_they_were_sent() -> None:
    with VectorEnv(Gated, 2, workers=1) as envs:
        envs.reset()
        actions = each("1")
        envs.send([each("wait"), actions])
        actions["b"] = "100"
        gate(envs, 0).set()
        assert envs.recv(2)[1].rewards == each(1.0)


@pytest.mark.parametrize("timeout", [0, 0.05, -1, math.nan])
def test_a_timeout(timeout: float) -> None:
    with VectorEnv(Gated, 2) as envs:
        envs.reset()
        envs.send([each("wait"), ONE])
        time.sleep(0.05)
        started = time.monotonic()
        assert [result.index for result in envs.recv(at_least=2, timeout=timeout)] == [1]
        assert envs.recv(timeout=timeout) == []
        assert (timeout if timeout > 0 else 0) <= time.monotonic() - started < 1
        gate(envs, 0).set()
        assert [result.index for result in envs.recv(timeout=math.inf)] == [0]


# The end


@sync_and_async
def test_a_closed_vector(workers: int) -> None:
    envs = VectorEnv(Fixed, 2, workers=workers)
    made = [*envs]
    envs.reset()
    envs.send({0: ONE})
    envs.close()
    envs.close()
    assert [env.closed for env in made if isinstance(env, Fixed)] == [1, 1]
    for use in (envs.reset, envs.recv, lambda: envs.step([ONE, ONE]), lambda: envs.send({}), lambda: envs[0]):
        with pytest.raises(EnvError, match="closed"):
            use()


def test_close_waits_for_steps_that_run_and_begins_no_other() -> None:
    envs = VectorEnv(Gated, 3, workers=1)
    made = [env for env in envs if isinstance(env, Gated)]
    envs.reset()
    envs.send([each("wait"), ONE, ONE])
    assert made[0].entered.wait(5)
    closing = threading.Thread(target=envs.close)
    closing.start()
    time.sleep(0.05)
    assert closing.is_alive() and made[0].closed == 0
    made[0].gate.set()
    closing.join(5)
    assert threads() == [] and [env.closed for env in made] == [1, 1, 1]
    assert [env.steps for env in made] == [1, 0, 0] and made[0].returns["a"] == 7.0


def test_who_waits_for_a_vector_that_is_closed_is_told() -> None:
    envs = VectorEnv(Gated, 2, workers=1)
    made = [env for env in envs if isinstance(env, Gated)]
    envs.reset()
    envs.send([each("wait"), ONE])
    assert made[0].entered.wait(5)

    def close_soon() -> None:
        time.sleep(0.02)
        threading.Timer(0.05, made[0].gate.set).start()
        envs.close()

    closing = threading.Thread(target=close_soon)
    closing.start()
    with pytest.raises(EnvError, match="closed"):
        envs.recv(at_least=2)
    closing.join(5)


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """Breaks in a little later, as a person at the terminal would."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
    yield lambda: threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("move", ["recv", "step", "close"])
def test_ctrl_c_leaves_nothing_hanging(move: str, ctrl_c: Callable[[], None]) -> None:
    with VectorEnv(Gated, 2, seed=0) as envs:
        made = [env for env in envs if isinstance(env, Gated)]
        envs.reset()
        envs.send({0: each("wait")})
        assert made[0].entered.wait(5)
        ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            {"recv": envs.recv, "close": envs.close, "step": lambda: envs.step({1: each("wait")})}[move]()
        assert made[0].rewards == each(0.0)
        for env in made:
            env.gate.set()
        if move != "close":
            waited_for = envs.outstanding
            assert [result.index for result in envs.recv(len(waited_for))] == waited_for
            assert waited_for == ([0, 1] if move == "step" else [0])
            assert [result.episode for result in envs.reset()] == [1, 1]
    assert threads() == [] and [env.closed for env in made] == [1, 1]


def test_a_vector_that_nobody_closed_is_a_warning() -> None:
    envs = VectorEnv(Gated, 2)
    made = [env for env in envs if isinstance(env, Gated)]
    envs.reset()
    envs.send({0: each("wait")})
    assert made[0].entered.wait(5)
    with pytest.warns(ResourceWarning, match="VectorEnv of 2 envs was never closed"):
        del envs
        gc.collect()
    assert [env.closed for env in made] == [0, 1]
    made[0].gate.set()
    until(lambda: made[0].closed == 1 and not threads())


def test_a_vector_that_was_closed_is_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with VectorEnv(Fixed) as envs:
            envs.reset()
        del envs
        gc.collect()


def test_a_step_that_never_ends_does_not_keep_the_interpreter_from_its_exit() -> None:
    code = """
import time
from marl_gem import MultiAgentEnv, ParallelSelector
from marl_gem.vector import VectorEnv

class Endless(MultiAgentEnv):
    possible_agents = ("a",)
    selector = ParallelSelector()
    blocking = True

    def observe(self, agent):
        return ""

    def _process_actions(self, actions):
        time.sleep(1000)

    def close(self):
        print("closed", flush=True)

envs = VectorEnv(Endless, 3)
envs.reset()
envs.send({1: {"a": ""}})
print(envs.recv(timeout=0.2), flush=True)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.split("\n") == ["[]", "closed", "closed", ""]


def test_ten_thousand_envs() -> None:
    with VectorEnv(Fixed, 10_000, seed=0) as envs:
        assert len({result.seed for result in envs.reset()}) == 10_000
        for _ in range(2):
            results = envs.step([ONE] * 10_000)
        assert [result.index for result in results] == [*range(10_000)]
        assert all(result.done for result in results)
    assert threads() == []


def test_wrapped_envs() -> None:
    wrappers = pytest.importorskip("marl_gem.wrappers")
    with VectorEnv(lambda: wrappers.TimeLimit(Fixed(), 1), 2, seed=0) as envs:
        envs.reset()
        with pytest.raises(InvalidAction, match="env 1"):
            envs.step([ONE, {"a": "1"}])
        results = envs.step([ONE, ONE])
        assert [result.truncations for result in results] == [each(True)] * 2
        assert [result.returns for result in results] == [each(1.0)] * 2 and results[1].done
        assert [result.episode for result in envs.step([{}, {}])] == [1, 1]
