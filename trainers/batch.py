"""The records of one update: turns in tokens, with their returns.

Transition    one turn of one agent, in tokens
Trajectory    the transitions of one agent in one episode, in order
Batch         all trajectories of an update, of every policy that learns
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import msgspec

from marl_gem.errors import ConfigError, MarlGemError, TrainingError
from marl_gem.types import Episode


class Transition(msgspec.Struct, frozen=True):
    """One turn in tokens.

    `episode` is the episode's id, `turn` the index of this turn among the agent's own in it, from 0. `group` is the
    same for episodes that start from the same state, for algorithms that compare these. `logprobs` are the natural
    logarithms of the probabilities that `action_ids` were sampled with, `version` the number of updates the policy
    had had then. `return_` is the discounted return from this turn on.
    """

    episode: str
    group: str
    turn: int
    scenario: str
    agent: str
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    reward: float
    return_: float
    advantage: float = 0.0


Trajectory: TypeAlias = list[Transition]


@dataclass(frozen=True)
class Batch:
    """All trajectories of one update."""

    trajectories: Sequence[Trajectory]

    @cached_property
    def transitions(self) -> list[Transition]:
        """All transitions, trajectory by trajectory."""
        return [transition for trajectory in self.trajectories for transition in trajectory]

    def with_advantages(self, advantages: Sequence[float]) -> Batch:
        """The same batch with these advantages, which come in the order of `transitions`.

        Raises:
            TrainingError: there is not one finite number for each transition.
        """
        count = len(self.transitions)
        if len(advantages) != count:
            raise TrainingError(
                f"the algorithm gave {len(advantages)} advantages for {count} transitions; one for each"
            )
        for transition, advantage in zip(self.transitions, advantages, strict=True):
            if not math.isfinite(advantage):
                raise TrainingError(
                    f"the algorithm gave the advantage {advantage} to {transition.agent!r} in episode "
                    f"{transition.episode}; advantages are finite numbers"
                )
        following = iter(advantages)
        return Batch(
            [
                [msgspec.structs.replace(transition, advantage=next(following)) for transition in trajectory]
                for trajectory in self.trajectories
            ]
        )


def completed(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that did not fail.

    Raises:
        MarlGemError: all failed; the message has the first one's error.
    """
    good = [episode for episode in episodes if episode.error is None]
    if episodes and not good and (error := episodes[0].error):
        scenario = episodes[0].scenario
        raise MarlGemError(f"every episode of {scenario} failed, in {error.origin} ({error.type}): {error.message}")
    return good


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """The discounted return of every turn: G_t = r_t + gamma * G_{t+1}, over one agent's turns of one episode."""
    returns, following = [], 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]


def trajectories(episode: Episode, agents: Collection[str], gamma: float, group: str = "") -> list[Trajectory]:
    """The trajectories of these agents in one episode; an agent without a turn has none.

    Args:
        episode: played to its end.
        agents: whose turns are trained on.
        gamma: discounts from one turn of an agent to its next.
        group: see `Transition.group`; by default the episode is a group of its own.

    Raises:
        ConfigError: a turn holds no tokens, because no model in this process answered it.
    """
    found = []
    for agent in agents:
        turns = episode.turns_of(agent)
        if any(not turn.response.token_ids for turn in turns):
            raise ConfigError(f"{agent!r} in episode {episode.id} answered without tokens; only models can be trained")
        returns = discounted_returns([turn.reward for turn in turns], gamma)
        trajectory = [
            Transition(
                episode=episode.id,
                group=group or episode.id,
                turn=index,
                scenario=episode.scenario,
                agent=agent,
                prompt_ids=turn.response.prompt_ids,
                action_ids=turn.response.token_ids,
                logprobs=turn.response.logprobs,
                version=turn.response.version,
                reward=turn.reward,
                return_=return_,
            )
            for index, (turn, return_) in enumerate(zip(turns, returns, strict=True))
        ]
        if trajectory:
            found.append(trajectory)
    return found
