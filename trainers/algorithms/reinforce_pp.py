"""REINFORCE++: returns normalized over the whole batch, with PPO's clipped loss and no critic.

Source: Hu et al., "REINFORCE++" (arXiv 2501.03262), section 3. The paper pays the divergence from the reference as a
reward: set `training.kl_in = "reward"`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from marl_gem.trainers.algorithms.base import Advantages
from marl_gem.trainers.algorithms.grouped import first_returns, group_key
from marl_gem.trainers.algorithms.normalization import GroupBy, baseline, keys, normalize
from marl_gem.trainers.algorithms.surrogate import Surrogate, SurrogateOptions
from marl_gem.trainers.batch import Batch


class ReinforcePlusPlus:
    """Advantage = (discounted return - mean) / std, over all transitions of the batch, whatever agent they are of.

    With groups (`group_size` above 1) the mean of the group's returns is taken off first, as in the paper's variant
    "REINFORCE++ with baseline".
    """

    class Options(SurrogateOptions, frozen=True):
        # How many episodes start from the same state; 1 for no groups. It divides training.episodes.
        group_size: Annotated[int, Meta(ge=1)] = 1
        # What is normalized together, see `ReBN`; the paper has one agent and takes "all".
        group_by: GroupBy = "all"

    METRICS: ClassVar = {
        "zero_variance": "what is normalized together and has no spread, so that its advantages are 0",
    }

    def __init__(self, options: Options) -> None:
        self.options = options
        self.loss = Surrogate(options)
        self.needs = self.loss.needs(group_size=options.group_size)

    def advantages(self, batch: Batch) -> Advantages:
        returns = [transition.return_ for transition in batch.transitions]
        if self.options.group_size > 1:
            means = {key: baseline(list(group.values())).mean for key, group in first_returns(batch).items()}
            returns = [t.return_ - means[group_key(t)] for t in batch.transitions]
        values, baselines = normalize(returns, keys(batch.transitions, self.options.group_by))
        constant = sorted(" ".join(group) for group, b in baselines.items() if b.zero_variance)
        return Advantages(values, {"zero_variance": constant})
