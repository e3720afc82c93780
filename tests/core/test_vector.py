"""A vector of envs plays what its envs play alone: seeds, episodes, autoreset."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marl_gem
from marl_gem import MultiAgentEnv
from marl_gem.errors import EpisodeOver
from marl_gem.seeding import derive_seed
from marl_gem.types import EpisodeError, from_json, to_json
from marl_gem.vector import Actions, Autoreset, Make, Result, VectorEnv
from tests.core.vector_envs import (
    AUTORESETS,
    PLAY,
    Boom,
    Fixed,
    SlowTable,
    Table,
    answer,
    each,
    every_autoreset,
    faulty,
)

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

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
        return Result(*place, *told, dict(self.env.returns), self.env.done)  # type: ignore[call-arg]

    @property
    def may_step(self) -> bool:
        return bool(self.observations) or (self.autoreset != "off" and self.episode >= 0)


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


def test_without_a_seed_the_vector_draws_its_seed() -> None:
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
        envs.step([PLAY])
        (result,) = envs.step([each("2")])
        assert result.done and result.rewards == each(2.0) and result.returns == each(3.0)
        assert result.terminations == each(True)
        assert result.episode == 1 and result.seed == derive_seed(0, 0, 1)
        assert result.observations == {"a": "a at 0", "b": "b at 0"} and result.infos == each({})
        final = result.final
        assert final and final.episode == 0 and final.seed == derive_seed(0, 0, 0) and final.observations == {}
        assert final.infos["b"]["final_observation"] == "b at 2" and final.returns == each(3.0)
        assert from_json(to_json(result), Result) == result
        (following,) = envs.step([PLAY])
        assert following.final is None and not following.done and following.returns == each(1.0)


def test_without_autoreset_an_ended_env_waits_for_its_reset() -> None:
    with VectorEnv(Fixed, 2, autoreset="off") as envs:
        envs.reset()
        envs.step({1: PLAY})
        assert envs.step([PLAY, PLAY])[1].done
        with pytest.raises(EpisodeOver, match=r"env 1 is over.*reset\(only=\[1\]\)"):
            envs.step([PLAY, PLAY])
        assert envs[0].steps == 1
        (begun,) = envs.reset(only=[1])
        assert begun.index == 1 and begun.episode == 1
        assert [result.done for result in envs.step([PLAY, PLAY])] == [True, False]
