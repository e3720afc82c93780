"""The record that a step or a reset of one env of a vector gives."""

from __future__ import annotations

import msgspec

from marl_gem.env import Infos, Observations
from marl_gem.types import EpisodeError


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a step or a reset of one env.

    `index` is the env's index in the vector; its episodes count from 0. `observations`, `rewards`,
    `terminations`, `truncations` and `infos` are those of `MultiAgentEnv.step`; after a reset the rewards
    are 0. `returns` holds each agent's undiscounted sum of rewards so far. `done`: the episode is over,
    because no agent is left or because something failed; `error` then says what, and the other fields are
    empty. No agent acts where `observations` is empty.

    With autoreset in the same step, a result that ends an episode is about two episodes: `episode`, `seed`,
    `observations` and `infos` belong to the next one, the other fields to the one that ended. `final` is the
    complete last result of the one that ended: its infos hold the final observations.
    """

    index: int
    episode: int
    seed: int
    observations: Observations = {}
    rewards: dict[str, float] = {}
    terminations: dict[str, bool] = {}
    truncations: dict[str, bool] = {}
    infos: Infos = {}
    returns: dict[str, float] = {}
    done: bool = False
    error: EpisodeError | None = None
    final: Result | None = None
