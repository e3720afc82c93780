"""Envs and wrappers that the tests of wrappers share, and ways to play them."""

from __future__ import annotations

import copy
import functools
import importlib.util
import random
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import marl_gem
from marl_gem import Metadata, MultiAgentEnv, ParallelSelector, Role, SequentialSelector, ToolSpec
from marl_gem.testing import Plan
from marl_gem.tools import Context, tool
from marl_gem.tools.calculator import calculator
from marl_gem.types import Observation
from marl_gem.views import summary
from marl_gem.wrappers import (
    EpisodeStatistics,
    MapObservation,
    ParseAction,
    RecordEpisodes,
    RewardClip,
    RewardEnv,
    RewardScale,
    ShowHistory,
    StepPenalty,
    TimeLimit,
    ToolEnv,
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


@tool(in_thread=False)
def count(word: str, context: Context) -> str:
    """Count letters, and roll a die.

    Args:
        word: A word.
    """
    return f"{len(word)} letters, {context.agent}, {context.seed % 6}"


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
    "tools": lambda env: ToolEnv(env, [calculator, count], call_reward=-0.1, calls_per_turn=2),
    "reward": lambda env: RewardEnv(env, "matches:pattern=[3a]", weight=0.5),
    "tools of some": lambda env: ToolEnv(env, "calculator", agents=env.possible_agents[0], format="tags"),
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
"""Makers of actions that must be refused, from the acting agents."""
