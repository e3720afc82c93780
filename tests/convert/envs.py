"""Scenarios and helpers of these tests."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402
from gymnasium import spaces  # noqa: E402
from pettingzoo import AECEnv, ParallelEnv  # noqa: E402

import marl_gem  # noqa: E402
from marl_gem import DirectedSelector, MultiAgentEnv, ParallelSelector, Role, SequentialSelector  # noqa: E402
from marl_gem.convert import FreeText, from_gymnasium  # noqa: E402
from marl_gem.errors import MissingPackage  # noqa: E402
from marl_gem.types import Metadata  # noqa: E402
from tests import suites, toys  # noqa: E402

ROOT = Path(__file__).parents[2]
TAXI = max(id for id in gymnasium.registry if id.startswith("Taxi-v"))


class RockPaperScissors(MultiAgentEnv):
    """Rock, paper, scissors over several rounds; who shows "paper" in the second round ends with it."""

    possible_agents = ("a_0", "b_0")
    selector = ParallelSelector()
    metadata = Metadata(zero_sum=True, turn_order="parallel")
    hands = ("rock", "paper", "scissors")

    def _reset(self, options: Mapping[str, Any]) -> None:
        self.rounds = options.get("rounds", 3)
        super()._reset({name: value for name, value in options.items() if name != "rounds"})
        self.last: dict[str, str] = {}

    def role(self, agent: str) -> Role:
        return Role(f"You are {agent}. Say rock, paper or scissors.")

    def observe(self, agent: str) -> str:
        return f"Round {self.steps}. Last: {self.last}"

    def legal_actions(self, agent: str) -> list[str]:
        return list(self.hands)

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.last = actions
        if len(actions) == 2 and set(actions.values()) <= set(self.hands):
            a, b = (self.hands.index(actions[agent]) for agent in self.possible_agents)
            self.rewards = {"a_0": float((a - b + 1) % 3 - 1), "b_0": float((b - a + 1) % 3 - 1)}
        for agent, hand in actions.items():
            self.infos[agent]["said"] = hand
            self.terminations[agent] = self.steps == self.rounds or (self.steps == 2 and hand == "paper")


class Village(toys.Village):
    """The village with legal actions, without roles, for 40 steps."""

    max_steps = 40
    thanks = 0.25
    truncates = True

    def role(self, agent: str) -> Role:
        return Role()

    def legal_actions(self, agent: str) -> list[str]:
        named = [f"{verb} {name}" for verb in ("banish", "invite", "thank") for name in ("ann", "bob", "dan", "eve")]
        return [*named, "leave", "hello", "hello", "hello"]


class Debate(MultiAgentEnv):
    """A host asks and two guests answer at once, twice; observations have content parts; the host ends first."""

    possible_agents = ("host_0", "guest_0", "guest_1")
    selector = DirectedSelector()

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.said = ""

    def observe(self, agent: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": self.said}, {"type": "image", "data": self.steps}]

    def _process_actions(self, actions: dict[str, str]) -> None:
        self.said = " | ".join(f"{agent}: {text}" for agent, text in actions.items())
        self.rewards = {agent: float(len(text)) for agent, text in actions.items()}
        if self.steps % 2:
            self.selector.direct("guest_0", "guest_1")
        else:
            self.selector.direct("host_0")
        if self.steps == 3:
            self.terminations["host_0"] = True
        if self.steps == 4:
            self.rewards["host_0"] = 10.0  # it has ended before
            self.terminations |= dict.fromkeys(("guest_0", "guest_1"), True)


class Quiz(MultiAgentEnv):
    """One agent; three questions."""

    possible_agents = ("pupil_0",)
    selector = SequentialSelector()
    metadata = Metadata(turn_order="sequential")

    def _reset(self, options: Mapping[str, Any]) -> None:
        super()._reset(options)
        self.numbers = [self.rng.randrange(10) for _ in range(4)]

    def role(self, agent: str) -> Role:
        return Role("Double the number.")

    def observe(self, agent: str) -> str:
        return str(self.numbers[self.steps])

    def _process_actions(self, actions: dict[str, str]) -> None:
        right = actions["pupil_0"] == str(2 * self.numbers[self.steps - 1])
        self.rewards["pupil_0"], self.infos["pupil_0"]["right"] = float(right), right
        self.terminations["pupil_0"] = self.steps == 3


HERE: dict[str, Callable[[], MultiAgentEnv]] = {
    "RockPaperScissors": RockPaperScissors,
    "Village": Village,
    "Debate": Debate,
    "Quiz": Quiz,
}
REGISTERED = {scenario.id: scenario for scenario in suites.sampled(marl_gem.list()) if not scenario.unavailable}
QUICK_SEEDS = {"ta:Sudoku-v0-hard": 6}
"""Where a reset may take many seconds: a seed with which it does not."""


def make(name: str) -> MultiAgentEnv:
    try:
        env = HERE[name]() if name in HERE else marl_gem.make(name)
    except MissingPackage as error:
        pytest.skip(str(error))
    if name in QUICK_SEEDS:
        reset = env.reset
        env.reset = lambda seed=None, options=None: reset(QUICK_SEEDS[name], options)  # type: ignore[method-assign]
    return env


every_scenario = pytest.mark.parametrize("name", [*HERE, *REGISTERED])


def choose(env: MultiAgentEnv, agent: str, dice: random.Random) -> str:
    return dice.choice([*(env.legal_actions(agent) or ["[0]", "[1 2]", "Well."]), "hello"])


def aec_episode(env: AECEnv, seed: int) -> list[Any]:
    """All that happens when legal moves are sampled, whatever an agent is shown included."""
    env.reset(seed=seed)
    record: list[Any] = []
    for agent in env.agent_iter(300):
        env.action_space(agent).seed(len(record) + seed)
        last = env.last()
        action = None if last[2] or last[3] else env.action_space(agent).sample()
        record.append((agent, *last, action))
        env.step(action)
    return record


def parallel_episode(env: ParallelEnv, seed: int) -> list[Any]:
    record: list[Any] = [env.reset(seed=seed)]
    while env.agents and len(record) < 60:
        for number, agent in enumerate(env.agents):
            env.action_space(agent).seed(100 * len(record) + number + seed)
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        record.append((actions, env.step(actions), list(env.agents)))
    return record


def zoo(module: str, kind: str = "env", **options: Any) -> Callable[[], Any]:
    """What makes one of PettingZoo's own; the test is skipped where a package for it is missing."""

    def factory() -> Any:
        loaded = pytest.importorskip(module, exc_type=ImportError)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(loaded, kind)(**options)

    return factory


NATIVE = {
    "tictactoe": zoo("pettingzoo.classic.tictactoe_v3"),
    "connect four": zoo("pettingzoo.classic.connect_four_v3"),
    "rps": zoo("pettingzoo.classic.rps_v2"),
    "rps, parallel": zoo("pettingzoo.classic.rps_v2", "parallel_env"),
    "leduc": zoo("pettingzoo.classic.leduc_holdem_v4"),
    "texas": zoo("pettingzoo.classic.texas_holdem_v4", num_players=3),
    "texas, no limit": zoo("pettingzoo.classic.texas_holdem_no_limit_v6"),
    "chess": zoo("pettingzoo.classic.chess_v6"),
    "go": zoo("pettingzoo.classic.go_v5", board_size=5),
    "hanabi": zoo("pettingzoo.classic.hanabi_v5"),
    "zombies": zoo("pettingzoo.butterfly.knights_archers_zombies_v11", max_cycles=200, spawn_delay=3),
    "zombies, parallel": zoo(
        "pettingzoo.butterfly.knights_archers_zombies_v11",
        "parallel_env",
        max_cycles=250,
        spawn_delay=3,
        max_zombies=30,
    ),
    "spread": zoo("mpe2.simple_spread_v3"),
    "spread, parallel": zoo("mpe2.simple_spread_v3", "parallel_env"),
    "adversary, continuous": zoo("mpe2.simple_adversary_v3", continuous_actions=True),
    "world, parallel": zoo("mpe2.simple_world_comm_v3", "parallel_env"),
    "newcomers": zoo("pettingzoo.test.example_envs.generated_agents_env_v0"),
    "newcomers, parallel": zoo("pettingzoo.test.example_envs.generated_agents_parallel_v0", "parallel_env"),
}


STEPS = {"newcomers, parallel": 60}
"""This one never ends."""


def sampled(env: MultiAgentEnv, agent: str, dice: random.Random) -> str:
    """A legal action as text: one that is listed, or five numbers."""
    return dice.choice(env.legal_actions(agent) or [json.dumps([round(dice.random(), 3) for _ in range(5)])])


class Echo(gymnasium.Env[Any, Any]):  # type: ignore[misc, name-defined]
    """Takes any action of a space, shows any observation of another, and remembers what it was given."""

    def __init__(self, action_space: Any, shown: Any = 0, observation_space: Any = None, info: Any = None) -> None:
        self.action_space, self.shown, self.info = action_space, shown, info or {}
        self.observation_space = observation_space or spaces.Discrete(5)
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.shown, self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.given.append(action)
        return self.shown, 0.0, False, False, self.info


def given(space: Any, text: str, **options: Any) -> Any:
    """What an env with this action space is given if an agent writes `text`; None if that is illegal."""
    echo = Echo(space)
    env = from_gymnasium(echo, **options)
    env.reset(seed=0)
    *_, infos = env.step({"player_0": text})
    assert env.done == bool(infos["player_0"].get("illegal")) == (not echo.given)
    return echo.given[0] if echo.given else None


BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 10], np.float32))


CAR = spaces.Dict({"steer": spaces.Box(-1, 1, (), np.float32), "gear": spaces.Discrete(5, start=1), "say": FreeText()})


PAIR = spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2)))


def text_episode(env: MultiAgentEnv, seed: int, steps: int = 40) -> Iterator[Any]:
    dice = random.Random(seed)
    yield env.reset(seed=seed)
    while not env.done and env.steps < steps:
        actions = {agent: sampled(env, agent, dice) for agent in env.acting}
        yield actions, env.step(actions), env.acting


def same_episode(
    env: MultiAgentEnv, back: MultiAgentEnv, seed: int, steps: int, names: Mapping[str, str] | None = None
) -> bool:
    """Play both with the same actions and compare all that happens; `names` are the agents' in the second."""
    names = names or {}

    def renamed(record: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(agent, agent): value for agent, value in record.items()}

    dice = random.Random(seed)
    expected, got = env.reset(seed=seed), back.reset(seed=seed)
    assert [renamed(part) for part in expected] == list(got)
    given = dict.fromkeys(env.returns, 0.0)  # unlike `returns` without what comes after an agent has ended
    while not env.done and env.steps < steps:
        actions = {agent: choose(env, agent, dice) for agent in env.acting}
        step = env.step(actions)
        assert [renamed(part) for part in step] == list(back.step(renamed(actions)))
        assert renamed(dict.fromkeys(env.acting)) == dict.fromkeys(back.acting)
        for agent, reward in step[1].items():
            given[agent] = given.get(agent, 0.0) + reward
    return env.done == back.done and renamed(given | dict.fromkeys(set(env.agents) - set(given), 0.0)) == back.returns


def limited(env: MultiAgentEnv, max_steps: int) -> MultiAgentEnv:
    env.max_steps = max_steps
    return env


STRANGE_TEXTS = ["", "x" * 1_000_000, "\ud800", "a\x00b", "日本 🦊 \U0010ffff", "\n\t\r"]


ONE_AGENT = ["Quiz", *(id for id, scenario in REGISTERED.items() if scenario.agents[0] == 1)]


def as_action(text: str) -> Any:
    value = json.loads(text)
    return value[0] if isinstance(value[0], int) else np.array(value, dtype=np.float32)
