"""Who answers during rollouts, and how new weights reach it: the protocols."""

from __future__ import annotations

from typing import Protocol

from marl_gem.policies import Policy
from marl_gem.trainers.backends.base import Backend
from marl_gem.trainers.opponent_pool import Snapshot
from marl_gem.types import Episode


class WeightSync(Protocol):
    """How new weights reach a sampler."""

    def sync(self, backend: Backend) -> None:
        """Let the backend's present weights answer from now on; responses tell its version."""
        ...


class Player(Protocol):
    """What answers for one policy while episodes are played."""

    @property
    def policy(self) -> Policy:
        """Answers with the weights that were put in last."""
        ...

    def opponent(self, snapshot: Snapshot) -> Policy:
        """Answers with the weights of a snapshot, until the next call."""
        ...

    def check(self) -> None:
        """Raises LLMError if it can answer no more, so that a run goes no further with what is left of its episodes."""
        ...


class PlayingCopy(Player, Protocol):
    """Answers beside the sampler that it is a copy of, in another thread, with weights of its own."""

    def load(self, snapshot: Snapshot) -> None:
        """Let these weights answer from now on; responses tell their version. No answer may be under way."""
        ...


class Sampler(WeightSync, Player, Protocol):
    """What answers for a policy with its newest weights."""

    def playing_copy(self) -> PlayingCopy:
        """A copy that plays while the backend learns, for `training.staleness` above 0."""
        ...

    @property
    def exact_policy(self) -> Policy:
        """The same policy by the weights in this process, for exact analyses."""
        ...

    def final_prompt(self, episode: Episode, agent: str) -> tuple[int, ...]:
        """The tokens of the prompt that the policy would have answered next in an episode that was cut off.

        Empty if the record does not say what the agent saw last, or if it does not fit the model's context.
        """
        ...
