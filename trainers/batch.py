"""The records of one update: turns in tokens, with their returns.

Transition    one turn of one agent, in tokens
Trajectory    the transitions of one agent in one episode, in order
Batch         all trajectories of an update, of every policy that learns
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    had had then. `return_` is the discounted return from this turn on. `value` is what a critic expected that return to
    be, and `next_value` the same of the agent's next turn, or after its last turn of what it saw last, if the episode
    was cut off there; `next_prompt_ids` is the prompt that shows it. Without a critic both values are 0.
    `cut` is whether the answer was cut short by its greatest length; with `masked` its tokens are not trained.
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
    value: float = 0.0
    next_value: float = 0.0
    next_prompt_ids: tuple[int, ...] = ()
    cut: bool = False
    masked: bool = False


Trajectory: TypeAlias = list[Transition]


@dataclass(frozen=True)
class Batch:
    """All trajectories of one update, and the discount from one turn of an agent to its next."""

    trajectories: Sequence[Trajectory]
    gamma: float = 1.0

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
        return self._replaced({"advantage": advantage} for advantage in advantages)

    def with_values(self, values: Sequence[float], final: Sequence[float]) -> Batch:
        """The same batch with what a critic expects.

        Args:
            values: the value of each transition, in the order of `transitions`.
            final: for each trajectory the value after its last turn; 0 where the episode ended there.
        """
        before, after = iter(values), iter(final)
        changes = []
        for trajectory in self.trajectories:
            part = [next(before) for _ in trajectory]
            following = [*part[1:], next(after)]
            changes += [{"value": v, "next_value": n} for v, n in zip(part, following, strict=True)]
        return self._replaced(changes)

    def with_rewards(self, rewards: Sequence[float]) -> Batch:
        """The same batch with these rewards, in the order of `transitions`, and the returns that follow from them."""
        following = iter(rewards)
        changes: list[dict[str, float]] = []
        for trajectory in self.trajectories:
            part = [next(following) for _ in trajectory]
            returns = discounted_returns(part, self.gamma)
            changes += [{"reward": r, "return_": g} for r, g in zip(part, returns, strict=True)]
        return self._replaced(changes)

    def with_masks(self, masked: Sequence[bool]) -> Batch:
        """The same batch with these transitions masked, in the order of `transitions`."""
        return self._replaced({"masked": value} for value in masked)

    def _replaced(self, changes: Iterable[Mapping[str, float]]) -> Batch:
        """The same batch with other values in each transition."""
        following = iter(changes)
        return Batch(
            [
                [msgspec.structs.replace(transition, **next(following)) for transition in trajectory]
                for trajectory in self.trajectories
            ],
            self.gamma,
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


def trajectories(
    episode: Episode,
    agents: Collection[str],
    gamma: float,
    group: str = "",
    final_prompt: Callable[[Episode, str], tuple[int, ...]] | None = None,
    reward: float | None = None,
) -> list[Trajectory]:
    """The trajectories of these agents in one episode; an agent without a turn has none.

    Args:
        episode: played to its end.
        agents: whose turns are trained on.
        gamma: discounts from one turn of an agent to its next.
        group: see `Transition.group`; by default the episode is a group of its own.
        final_prompt: gives the prompt that shows what an agent saw last in an episode that was cut off, for
            `Transition.next_prompt_ids`; by default there is none.
        reward: what the agent gets at its last turn, in place of all rewards of the scenario; by default these stay.

    Raises:
        ConfigError: a turn holds no tokens, because no model in this process answered it.
    """
    found = []
    for agent in agents:
        turns = episode.turns_of(agent)
        if any(not turn.response.token_ids for turn in turns):
            raise ConfigError(f"{agent!r} in episode {episode.id} answered without tokens; only models can be trained")
        rewards = [turn.reward for turn in turns]
        if reward is not None:
            rewards = [0.0] * (len(turns) - 1) + [reward][: len(turns)]
        returns = discounted_returns(rewards, gamma)
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
                reward=rewards[index],
                return_=return_,
                cut=turn.response.finish_reason == "length",
            )
            for index, (turn, return_) in enumerate(zip(turns, returns, strict=True))
        ]
        if trajectory and final_prompt is not None and episode.ending == "truncated":
            trajectory[-1] = msgspec.structs.replace(trajectory[-1], next_prompt_ids=final_prompt(episode, agent))
        if trajectory:
            found.append(trajectory)
    return found
