"""Kuhn poker by self-play with tables in place of a model: what an algorithm can reach, in seconds.

    python benchmarks/kuhn_tables.py [--seeds 3]

One logit for each of the twelve information sets, Adam, REINFORCE with normalized returns and the exact divergence
from a reference, as in the trainer. Prints one JSON line with the exploitability in chips a hand (0 at an equilibrium,
0.458 for uniform play) under several settings, as means over seeds: `last` over the policies after the last ten
updates, `average` of the policy that is the average of the second half. `lopsided.py` takes its predictions from here.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from marl_gem.scenarios.games.kuhn_analysis import DEALS, INFORMATION_SETS, average, exploitability
from marl_gem.scenarios.games.kuhn_poker import CARDS
from marl_gem.trainers.schedule import cosine, linear

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

HIGHER = np.array([CARDS.index(first) > CARDS.index(second) for first, second in DEALS])
HELD = np.array([[CARDS.index(card) for card in deal] for deal in DEALS])
OPENED, CHECKED, BET, RAISED = range(4)
"""The indices of the four histories, as in `kuhn_analysis.HISTORIES`."""


@dataclass(frozen=True)
class Settings:
    """What is varied; the names are those of a training configuration."""

    updates: int = 200
    episodes: int = 512
    learning_rate: float = 0.05
    momentum: float = 0.9
    kl: float = 0.3
    kl_final: float = 0.05
    reference_every: int = 0
    normalization: Literal["agent", "all", "none", "rae"] = "agent"
    factor: float = 1.0
    """player_1 is paid factor * chips + offset."""
    offset: float = 0.0


@dataclass(frozen=True)
class Turns:
    """All turns of a batch: the index of the information set, whether the second move was taken, seat and return."""

    at: Ints
    second: Floats
    seat: Ints
    returns: Floats


def play(bets: Floats, episodes: int, rng: np.random.Generator) -> Turns:
    """Hands of self-play; `bets` has the probability of the second move at each information set."""
    deal = rng.integers(len(DEALS), size=episodes)
    sign, draws = np.where(HIGHER[deal], 1.0, -1.0), rng.random((episodes, 3))
    chips = sign.copy()  # of player_0; two checks show the cards
    parts: list[tuple[Ints, Ints, npt.NDArray[np.bool_], int]] = []

    def move(hands: Ints, seat: int, history: int, turn: int) -> npt.NDArray[np.bool_]:
        at = HELD[deal[hands], seat] * 4 + history
        taken: npt.NDArray[np.bool_] = draws[hands, turn] < bets[at]
        parts.append((hands, at, taken, seat))
        return taken

    hands = np.arange(episodes)
    opened = move(hands, 0, OPENED, 0)
    checked, bet = hands[~opened], hands[opened]
    raised = move(checked, 1, CHECKED, 1)
    called = move(bet, 1, BET, 1)
    chips[bet[~called]] = 1
    chips[bet[called]] *= 2
    again = checked[raised]
    called = move(again, 0, RAISED, 2)
    chips[again[~called]] = -1
    chips[again[called]] *= 2
    seats = np.concatenate([np.full(len(hands), seat) for hands, _, _, seat in parts])
    won = np.concatenate([chips[hands] for hands, _, _, _ in parts])
    return Turns(
        np.concatenate([at for _, at, _, _ in parts]),
        np.concatenate([taken for _, _, taken, _ in parts]).astype(float),
        seats,
        np.where(seats == 0, won, -won),
    )


def advantages(turns: Turns, settings: Settings, means: Floats) -> Floats:
    """The advantage of every turn; `means` are the seats' running means, which this moves."""
    returns = np.where(turns.seat == 1, settings.factor * turns.returns + settings.offset, turns.returns)
    if settings.normalization == "none":
        return returns
    if settings.normalization == "all":
        return (returns - returns.mean()) / returns.std()
    found = np.zeros(len(returns))
    for seat in (0, 1):
        mine = turns.seat == seat
        if settings.normalization == "rae":  # by now the running mean has all but forgotten earlier batches
            found[mine], means[seat] = returns[mine] - means[seat], returns[mine].mean()
        else:
            found[mine] = (returns[mine] - returns[mine].mean()) / returns[mine].std()
    return found


def simulate(settings: Settings, seed: int) -> dict[str, float]:
    """One run."""
    rng = np.random.default_rng(seed)
    logits, reference, first, second, means = (np.zeros(12) for _ in range(5))
    means = np.zeros(2)
    policies: list[Floats] = []
    for done in range(settings.updates):
        if settings.reference_every and done % settings.reference_every == 0:
            reference = logits.copy()
        bets = 1 / (1 + np.exp(-logits))
        turns = play(bets, settings.episodes, rng)
        gradient = np.zeros(12)
        np.add.at(gradient, turns.at, advantages(turns, settings, means) * (turns.second - bets[turns.at]))
        pull = linear(settings.kl, settings.kl_final, done, settings.updates)
        divergence = bets * (1 - bets) * (logits - reference)  # the gradient of KL(policy || reference)
        gradient = (gradient - pull * np.bincount(turns.at, minlength=12) * divergence) / len(turns.at)
        first = settings.momentum * first + (1 - settings.momentum) * gradient
        second = 0.999 * second + 0.001 * gradient**2
        step = first / (1 - settings.momentum ** (done + 1)) / (np.sqrt(second / (1 - 0.999 ** (done + 1))) + 1e-8)
        logits = logits + cosine(settings.learning_rate, done, settings.updates) * step
        policies.append(1 / (1 + np.exp(-logits)))
    strategies = [dict(zip(INFORMATION_SETS, map(float, bets), strict=True)) for bets in policies]
    return {
        "last": fmean(map(exploitability, strategies[-10:])),
        "average": exploitability(average(strategies[len(strategies) // 2 :])),
    }


def predict(settings: Settings, seeds: int) -> dict[str, float]:
    """The means over seeds."""
    runs = [simulate(settings, seed) for seed in range(seeds)]
    return {name: round(fmean(run[name] for run in runs), 4) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    long = Settings(updates=400, learning_rate=0.1, kl_final=0.03)
    still = replace(long, momentum=0.0)
    tried = {
        "the first recipe: momentum 0.9, a fixed reference": Settings(),
        "longer, less pull": long,
        "without momentum": still,
        "with momentum, the reference moves every 50 updates": replace(long, reference_every=50),
        "without momentum, every 100": replace(still, reference_every=100),
        "without momentum, every 50": replace(still, reference_every=50),
        "without momentum, every 50, the same pull throughout": replace(still, reference_every=50, kl_final=0.3),
    }
    rows = [{"what": what, **asdict(tried[what]), **predict(tried[what], arguments.seeds)} for what in tried]
    print(json.dumps({"benchmark": "kuhn_tables", "rows": rows}))


if __name__ == "__main__":
    main()
