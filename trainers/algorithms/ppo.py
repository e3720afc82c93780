"""Proximal policy optimization (PPO), with a critic of turns.

Source: Schulman et al. (arXiv 1707.06347); generalized advantage estimation, Schulman et al. (arXiv 1506.02438),
equation 16. A step of the decision process is a turn, as in GEM (arXiv 2510.01051), section 3.2, so that rewards,
discount and values belong to turns, and all tokens of a turn have its advantage.
"""

from __future__ import annotations

from statistics import pvariance
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from marl_gem.trainers.algorithms.base import Advantages
from marl_gem.trainers.algorithms.normalization import keys, normalize
from marl_gem.trainers.algorithms.surrogate import Surrogate, SurrogateOptions
from marl_gem.trainers.batch import Batch, Trajectory


class PPO:
    """Advantage of a turn = sum over the turns from it on of (gamma * lambda)^k * (r + gamma * V(next) - V(turn)).

    After an agent's last turn V(next) is 0 if the episode ended, and the critic's value of what the agent saw last if
    it was cut off.
    """

    class Options(SurrogateOptions, frozen=True):
        # As in `SurrogateOptions`.
        epochs: Annotated[int, Meta(ge=1)] = 4
        # From 0 (the critic's word for all that follows the next turn) to 1 (returns, with the critic as baseline).
        lam: Annotated[float, Meta(ge=0, le=1)] = 0.95
        # What advantages are normalized over, see `ReBN`; "none" leaves them as they are.
        group_by: Literal["agent", "agent_turn", "all", "none"] = "agent"

    METRICS: ClassVar = {
        "explained_variance": "1 - variance(return - value) / variance(return), over the batch, before the critic's "
        "step; 1 for a perfect critic, 0 for a constant one",
    }

    def __init__(self, options: Options) -> None:
        self.options = options
        self.loss = Surrogate(options)
        self.needs = self.loss.needs(critic=True)

    def advantages(self, batch: Batch) -> Advantages:
        raw = [value for trajectory in batch.trajectories for value in gae(trajectory, batch.gamma, self.options.lam)]
        targets = [advantage + t.value for advantage, t in zip(raw, batch.transitions, strict=True)]
        metrics = {"explained_variance": _explained([t.return_ for t in batch.transitions], batch)}
        if self.options.group_by == "none":
            return Advantages(raw, metrics, targets)
        normalized, _ = normalize(raw, keys(batch.transitions, self.options.group_by))
        return Advantages(normalized, metrics, targets)


def gae(trajectory: Trajectory, gamma: float, lam: float) -> list[float]:
    """The generalized advantage estimate of each turn."""
    following, next_value, estimates = 0.0, trajectory[-1].next_value, []
    for transition in reversed(trajectory):
        error = transition.reward + gamma * next_value - transition.value
        following = error + gamma * lam * following
        next_value = transition.value
        estimates.append(following)
    return estimates[::-1]


def _explained(returns: list[float], batch: Batch) -> float:
    errors = [return_ - t.value for return_, t in zip(returns, batch.transitions, strict=True)]
    variance = pvariance(returns) if returns else 0.0
    return 1 - pvariance(errors) / variance if variance else 0.0
