"""What gradient learners come to in the iterated prisoner's dilemma, with exact gradients. Prints one line of JSON.

    python benchmarks/dilemma.py

Two memory-one strategies, sigmoids of five parameters drawn from a normal distribution, discount 0.96. "naive": both
follow the gradient of their own return. "lola": each follows the gradient of its return after the other's next naive
step (Foerster et al., 2018, arXiv 1709.04326, which reports -1.98 and -1.06). Values are mean rewards of a round over
both players and 20 seeds, with the standard deviation over seeds.
"""

from __future__ import annotations

import json
import statistics

import torch
from torch import Tensor

from marl_gem.scenarios.games.prisoners_dilemma import REWARDS, mean_rewards

DISCOUNT, SEEDS, UPDATES = 0.96, 20, 300
RATE, LOOK_AHEAD = 1.0, 1.0
"""Of the update, and of the other's step that LOLA looks ahead; for returns, which are 25 times the mean reward."""


def main() -> None:
    found = {name: [learn(seed, lola=name == "lola") for seed in range(SEEDS)] for name in ("naive", "lola")}
    means = {name: round(statistics.mean(values), 3) for name, values in found.items()}
    spread = {f"{name}_sd": round(statistics.stdev(values), 3) for name, values in found.items()}
    print(json.dumps({"benchmark": "dilemma", **means, **spread}))


def learn(seed: int, lola: bool) -> float:
    """The mean reward of a round over both players after learning."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(5, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    for _ in range(UPDATES):
        steps = [direction(first, second, lola), direction(second, first, lola)]
        with torch.no_grad():
            first += RATE * steps[0]
            second += RATE * steps[1]
    chances = [torch.sigmoid(p).tolist() for p in (first, second)]
    return sum(mean_rewards(chances[0], chances[1], DISCOUNT)) / 2


def direction(mine: Tensor, other: Tensor, lola: bool) -> Tensor:
    """The gradient of my return, in LOLA after the other's next step."""
    ahead = other
    if lola:
        (step,) = torch.autograd.grad(returned(other, mine), other, create_graph=True)
        ahead = other + LOOK_AHEAD * step
    return torch.autograd.grad(returned(mine, ahead), mine)[0]


def returned(mine: Tensor, other: Tensor) -> Tensor:
    """The exact return of the first of two strategies, as `mean_rewards` has it, but differentiable."""
    a = torch.sigmoid(mine)
    b = torch.sigmoid(other)[[0, 1, 3, 2, 4]]
    moves = torch.stack([a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)], dim=1)
    visits = torch.linalg.solve(torch.eye(4, dtype=a.dtype) - DISCOUNT * moves[1:].T, moves[0])
    return visits @ torch.tensor(list(REWARDS.values()), dtype=a.dtype)


if __name__ == "__main__":
    main()
