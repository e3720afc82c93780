"""Find out which of TextArena's games are zero-sum; a part of `scripts/textarena_survey.py`.

A game is declared zero-sum if all of this holds:

- It is for exactly two players, and its state is TextArena's `TwoPlayerState`, whose methods for an end give the two
  players 1 and -1, or 0 each. Nothing in its source assigns rewards in another way.
- At least 30 of 60 random episodes, each with its own seed, end, and the returns of each sum to zero. In a third of
  them every second text is no move, so that most games end by an illegal one; in another third none is.
- At least one of these episodes has a winner.
"""

from __future__ import annotations

import random
import re

from marl_gem.scenarios.textarena.env import TextArenaEnv

SEEDS = 60
STEPS = 300
ENDED = 30
ILLEGAL_RATES = (0.0, 0.1, 0.5)
"""The share of texts that hold no move; episodes take these rates in turn."""

_OTHER_REWARDS = re.compile(r"\.rewards\b|\bset_winners\((?!player_id=)")
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,20}\]")


def is_zero_sum(game: str, source: str) -> bool:
    """Whether a game that works with two players alone is zero-sum.

    Args:
        game: TextArena's id without suffix.
        source: the source of the game's module.
    """
    env = TextArenaEnv(game, 2)
    env.reset(seed=0)
    if type(env.game.state).__name__ != "TwoPlayerState" or _OTHER_REWARDS.search(source):
        return False
    ended = won = 0
    for seed in range(SEEDS):
        if not _play(env, seed):
            continue
        if sorted(env.returns.values()) not in ([-1.0, 1.0], [0.0, 0.0]):
            return False
        ended += 1
        won += any(env.returns.values())
    return ended >= ENDED and won > 0


def _play(env: TextArenaEnv, seed: int) -> bool:
    """Play an episode at random; whether the game ended within `STEPS` steps."""
    env.reset(seed=seed)
    rng = random.Random(seed)
    illegal_rate = ILLEGAL_RATES[seed % len(ILLEGAL_RATES)]
    while not env.done and env.steps < STEPS:
        (agent,) = env.acting
        shown = env.role(agent).instructions + env.observe(agent)
        moves = env.legal_actions(agent) or [*_BRACKETED.findall(shown), "[1]"]
        env.step({agent: "What now?" if rng.random() < illegal_rate else rng.choice(moves)})
    return bool(env.game.state.done)
