"""Group relative policy optimization (GRPO).

Source: Shao et al., "DeepSeekMath" (arXiv 2402.03300), section 4.1. Without its two terms: Liu et al., "Understanding
R1-Zero-like training" (Dr. GRPO, arXiv 2503.20783), section 3.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from marl_gem.trainers.algorithms.base import Advantages
from marl_gem.trainers.algorithms.grouped import first_returns, group_key, zero_variance_groups
from marl_gem.trainers.algorithms.normalization import Baseline, baseline
from marl_gem.trainers.algorithms.surrogate import Surrogate, SurrogateOptions
from marl_gem.trainers.batch import Batch


class GRPO:
    """Advantage = (discounted return - mean) / std, over the returns of the group's episodes from their first turns.

    With the reward at the end and no discount every turn of an episode has the same advantage, as in the paper. With
    rewards in between a turn is credited with what follows it. A group whose episodes all have the same return teaches
    nothing: where all their turns' returns are that return, the advantages are 0.
    """

    class Options(SurrogateOptions, frozen=True):
        # How many episodes start from the same state: G of the paper, from 2 up. It divides training.episodes.
        group_size: Annotated[int, Meta(ge=2)] = 8
        # Whether advantages are divided by the standard deviation of the group's returns. Easy and hard starts then
        # count more than those in between; Dr. GRPO leaves it out.
        divide_by_std: bool = True
        # As in `SurrogateOptions`; "answer" is the paper's length term, which Dr. GRPO leaves out ("turn").
        average: Literal["turn", "answer", "token"] = "answer"

    METRICS: ClassVar = {
        "groups": "how many groups there are, counted for each scenario and agent",
        "zero_variance_groups": "in how many of them all episodes have the same return",
    }

    def __init__(self, options: Options) -> None:
        self.options = options
        self.loss = Surrogate(options)
        self.needs = self.loss.needs(group_size=options.group_size)

    def advantages(self, batch: Batch) -> Advantages:
        groups = first_returns(batch)
        baselines = {key: baseline(list(returns.values())) for key, returns in groups.items()}
        values = [self._advantage(t.return_, baselines[group_key(t)]) for t in batch.transitions]
        return Advantages(values, {"groups": len(groups), "zero_variance_groups": zero_variance_groups(groups)})

    def _advantage(self, return_: float, group: Baseline) -> float:
        if group.size < 2:  # there is nothing to compare with
            return 0.0
        if not self.options.divide_by_std:
            return return_ - group.mean
        return 0.0 if group.zero_variance else (return_ - group.mean) / group.std
