"""PettingZoo's envs as ours: the same episodes as played natively, copies, and agents that join and leave."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

from gymnasium import spaces  # noqa: E402
from pettingzoo import ParallelEnv  # noqa: E402

from marl_gem.convert import from_gymnasium, from_pettingzoo  # noqa: E402
from marl_gem.errors import ConversionError, ScenarioFault  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import NATIVE, STEPS, Echo, as_action, sampled, text_episode  # noqa: E402


def native_returns(env: Any, seed: int, turns: deque[tuple[str, str]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Play these turns on PettingZoo's own; what every agent was given, and how it ended."""
    totals: dict[str, float] = {}
    endings: dict[str, Any] = {}
    if isinstance(env, ParallelEnv):
        env.reset(seed=seed)
        while turns:
            actions = {agent: as_action(turns.popleft()[1]) for agent in list(env.agents)}
            _, rewards, terminations, truncations, _ = env.step(actions)
            for agent, reward in rewards.items():
                totals[agent] = totals.get(agent, 0.0) + reward
                if terminations[agent] or truncations[agent]:
                    endings[agent] = (terminations[agent], truncations[agent])
        return totals, endings
    env.reset(seed=seed)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        totals[agent] = totals.get(agent, 0.0) + reward
        if terminated or truncated:
            endings[agent] = (terminated, truncated)
            env.step(None)
        elif turns:
            mover, text = turns.popleft()
            assert mover == agent
            env.step(as_action(text))
        else:
            break
    return totals, endings


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in NATIVE for seed in (0, 1) if (name, seed) != ("chess", 1)]
)
@pytest.mark.slow
def test_returns_are_those_of_the_same_actions_played_natively(name: str, seed: int) -> None:
    env, dice, turns = from_pettingzoo(NATIVE[name]), random.Random(seed), deque[tuple[str, str]]()
    endings: dict[str, Any] = {}
    env.reset(seed=seed)
    while not env.done and env.steps < STEPS.get(name, 5000):
        actions = {agent: sampled(env, agent, dice) for agent in env.acting}
        turns.extend(actions.items())
        _, _, terminations, truncations, _ = env.step(actions)
        endings |= {a: (terminations[a], truncations[a]) for a in terminations if terminations[a] or truncations[a]}
    assert env.done or name in STEPS
    totals, native_endings = native_returns(NATIVE[name](), seed, turns)
    assert not turns and endings == native_endings
    assert {a: total for a, total in totals.items() if total} == pytest.approx(
        {a: total for a, total in env.returns.items() if total}
    )
    assert env.returns.keys() >= totals.keys()


def test_an_illegal_action_ends_as_with_pettingzoo_s_own_wrapper() -> None:
    make_native = NATIVE["tictactoe"]
    native = make_native()
    native.reset(seed=0)
    won = dict.fromkeys(native.agents, 0.0)
    moves = deque([4, 4])
    for agent in native.agent_iter():
        _, reward, terminated, truncated, _ = native.last()
        won[agent] += reward
        native.step(None if terminated or truncated else moves.popleft())
    env = from_pettingzoo(make_native)
    env.reset(seed=0)
    env.step({"player_1": "[4]"})
    _, rewards, terminations, _, infos = env.step({"player_2": "I go there too: [4]"})
    assert rewards == {"player_1": 0.0, "player_2": -1.0} == env.returns == won
    assert all(terminations.values()) and env.done
    assert infos["player_2"]["illegal"] == "[4] is not legal now" and "illegal" not in infos["player_1"]


def test_an_illegal_action_can_be_replaced_by_a_random_one() -> None:
    def episode(seed: int) -> list[str]:
        env = from_pettingzoo(NATIVE["connect four"], illegal="random")
        env.reset(seed=seed)
        told = []
        while not env.done:
            mover = env.acting[0]
            *_, infos = env.step({mover: "No idea."})
            told.append(infos[mover]["illegal"])
        return told

    told = episode(1)
    assert len(told) > 6 and told == episode(1) != episode(2)
    assert "'No idea.' holds no action" in told[0] and told[0].endswith("was played instead.")


def test_where_all_act_only_those_who_break_the_rules_are_punished() -> None:
    env = from_pettingzoo(NATIVE["rps, parallel"])
    env.reset(seed=0)
    _, rewards, terminations, _, infos = env.step({"player_0": "[1]", "player_1": "[3]"})
    assert rewards == {"player_0": 0.0, "player_1": -1.0} and all(terminations.values())
    assert "'[3]' holds no action" in infos["player_1"]["illegal"]
    env = from_pettingzoo(NATIVE["rps, parallel"], illegal="random")
    env.reset(seed=0)
    env.step({"player_0": "[1]", "player_1": "[3]"})
    assert env.steps == 1 and not env.done


# Seeds, copies, agents that join and leave


SEVERAL = ["leduc", "texas", "zombies", "zombies, parallel", "adversary, continuous", "connect four", "go"]


@pytest.mark.parametrize("name", SEVERAL)
def test_32_copies_side_by_side_play_as_each_alone(name: str) -> None:
    beside = [text_episode(from_pettingzoo(NATIVE[name]), seed % 4, steps=12) for seed in range(32)]
    together: list[list[Any]] = [[] for _ in beside]
    live = list(range(32))
    while live:
        for number in list(live):
            try:
                together[number].append(next(beside[number]))
            except StopIteration:
                live.remove(number)
    alone = [list(text_episode(from_pettingzoo(NATIVE[name]), seed, steps=12)) for seed in range(4)]
    assert together == [alone[seed % 4] for seed in range(32)]
    assert len({repr(episode) for episode in alone}) > 1


@pytest.mark.parametrize("name", SEVERAL)
def test_a_fork_is_equal_and_goes_its_own_way(name: str) -> None:
    env = from_pettingzoo(NATIVE[name])
    env.reset(seed=5)
    env.step({agent: (env.legal_actions(agent) or ["[0, 0, 1, 0, 0]"])[0] for agent in env.acting})
    fork, other = env.fork(), env.fork()
    assert [fork.observe(agent) for agent in fork.acting] == [env.observe(agent) for agent in env.acting]
    dice = random.Random(1)
    other.step(dict.fromkeys(other.acting, "No."))
    while not env.done and env.steps < 30:
        actions = {agent: sampled(env, agent, dice) for agent in env.acting}
        assert env.step(actions) == fork.step(actions)
    assert fork.returns == env.returns


def test_a_fork_needs_a_factory_and_an_env_that_repeats_itself() -> None:
    env = from_pettingzoo(NATIVE["tictactoe"]())
    env.reset(seed=0)
    with pytest.raises(ConversionError, match="a function that makes a fresh one"):
        env.fork()

    class Forgetful(Echo):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return random.SystemRandom().random(), {}

    env = from_gymnasium(lambda: Forgetful(spaces.Discrete(2)))
    env.fork().reset(seed=0)  # before an episode there is nothing to repeat
    env.reset(seed=0)
    with pytest.raises(ConversionError, match="has not played the same episode again"):
        env.fork()


def test_with_a_factory_no_episode_depends_on_what_was_before() -> None:
    class Leaky(Echo):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return len(self.given), {}  # of all episodes

    space = spaces.Discrete(2)
    shown = []
    for env in (from_gymnasium(lambda: Leaky(space)), from_gymnasium(Leaky(space))):
        env.reset(seed=0)
        env.step({"player_0": "[1]"})
        shown.append(env.reset(seed=0)[0]["player_0"])
    assert shown == ["0", "1"]
    same = Leaky(space)
    env = from_gymnasium(lambda: same)
    env.reset(seed=0)
    with pytest.raises(ScenarioFault, match="must make a fresh env at every call"):
        env.reset(seed=0)


def test_agents_come_and_go_with_the_foreign_env() -> None:
    env = from_pettingzoo(NATIVE["newcomers"])
    assert env.possible_agents == () and env.metadata.joins
    list(text_episode(env, seed=1, steps=600))
    assert len(env.returns) > 10 and set(env.agents) == set(env.foreign.agents) < set(env.returns)
    names = set(env.returns)
    env.reset(seed=2)
    assert len(env.agents) == 5 and names > set(env.returns)


class Lobby(ParallelEnv):  # type: ignore[misc]
    """Two of three possible agents are there at the start; the third comes, one leaves without a word."""

    metadata = {"name": "lobby"}  # noqa: RUF012
    possible_agents = ["a", "b", "c"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(9)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = ["a", "b"]
        return dict.fromkeys(self.agents, 0), {}

    def step(self, actions: dict[str, int]) -> Any:
        self.agents = ["b", "c"]
        there = {*actions, "b", "c"}
        return (
            dict.fromkeys(there, 1),
            dict.fromkeys(there, 1),
            dict.fromkeys(actions, False),
            {"b": "c" in actions},
            {agent: {} for agent in there},
        )


def test_possible_agents_need_not_be_there_at_the_start_nor_say_goodbye() -> None:
    env = from_pettingzoo(Lobby())
    _, infos = env.reset(seed=0)
    assert env.agents == ("a", "b") == tuple(infos) and env.possible_agents == ("a", "b", "c")
    observations, _, terminations, _, _ = env.step({"a": "[0]", "b": "[1]"})
    assert terminations == {"a": True, "b": False} and tuple(observations) == ("b", "c") == env.acting
    _, _, terminations, truncations, _ = env.step({"b": "[0]", "c": "[1]"})
    assert truncations == {"b": True, "c": False} and env.agents == ("c",) and not any(terminations.values())
    assert env.returns == {"a": 1.0, "b": 2.0, "c": 2.0}
