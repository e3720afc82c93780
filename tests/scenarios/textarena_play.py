"""Plays the games of TextArena in tests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("textarena")


from marl_gem import MultiAgentEnv
from marl_gem.scenarios.textarena import catalog

BRACKETED = re.compile(r"\[[^\[\]\n]{1,20}\]")
WORKING = [game for game, entry in catalog.entries().items() if not catalog.unavailable(entry)]
FAILING = [game for game, entry in catalog.entries().items() if catalog.unavailable(entry)]
SLOW = {"Sudoku-v0-hard"}  # making its puzzle may take seconds


def choose(env: MultiAgentEnv, agent: str, dice: random.Random) -> str:
    """Mostly a legal move, or something in brackets that the player was shown."""
    moves = env.legal_actions(agent) or BRACKETED.findall(env.role(agent).instructions + str(env.observe(agent)))
    return dice.choice([*moves, "[1]", "[0 1]"]) if dice.random() < 0.9 else "What now?"


def play(env: MultiAgentEnv, seed: int, steps: int = 60) -> list[Any]:
    """All that happens in an episode, or in its first steps."""
    dice, start = random.Random(seed), env.reset(seed=seed)
    return [start, *play_on(env, dice, steps)]


def play_on(env: MultiAgentEnv, dice: random.Random, steps: int) -> Iterator[Any]:
    for _ in range(steps):
        if env.done:
            return
        (agent,) = env.acting
        action = choose(env, agent, dice)
        yield action, env.step({agent: action}), env.returns.copy()


def finish(env: MultiAgentEnv, *actions: str) -> dict[str, dict[str, Any]]:
    """Let whoever is to move say these texts in turn; the infos of the last step."""
    infos: dict[str, dict[str, Any]] = {}
    for action in actions:
        *_, infos = env.step({env.acting[0]: action})
    return infos
