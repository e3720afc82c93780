"""Plays the games of TextArena in tests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("textarena")


from marl_gem.scenarios.textarena import catalog
from marl_gem.scenarios.textarena.env import TextArenaEnv

BRACKETED = re.compile(r"\[[^\[\]\n]{1,20}\]")
WORKING = [game for game, entry in catalog.entries().items() if not catalog.unavailable(entry)]
FAILING = [game for game, entry in catalog.entries().items() if catalog.unavailable(entry)]
SLOW = {"Sudoku-v0-hard"}  # making its puzzle may take seconds


def choose(env: TextArenaEnv, agent: str, dice: random.Random) -> str:
    """Mostly a legal move, or something in brackets that the player was shown."""
    said = env.legal_actions(agent) or BRACKETED.findall(env.role(agent).instructions + env.observe(agent))
    return dice.choice([*said, "[1]", "[0 1]"]) if dice.random() < 0.9 else "What now?"


def play(env: TextArenaEnv, seed: int, steps: int = 60) -> list[Any]:
    """All that happens in an episode, or in its first steps."""
    dice, record = random.Random(seed), [env.reset(seed=seed)]
    return record + list(play_on(env, dice, steps))


def play_on(env: TextArenaEnv, dice: random.Random, steps: int) -> Iterator[Any]:
    for _ in range(steps):
        if env.done:
            return
        (agent,) = env.acting
        action = choose(env, agent, dice)
        yield action, env.step({agent: action}), env.returns.copy()


def finish(env: TextArenaEnv, *actions: str) -> dict[str, dict[str, Any]]:
    """Let whoever is to move say these texts in turn; the infos of the last step."""
    infos: dict[str, dict[str, Any]] = {}
    for action in actions:
        *_, infos = env.step({env.acting[0]: action})
    return infos
