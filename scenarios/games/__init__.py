"""Games of our own, as `game:<Name>-v0`."""

from marl_gem.registry import register

register(
    "game:KuhnPoker-v0",
    "marl_gem.scenarios.games.kuhn_poker:KuhnPoker",
    description="Poker with three cards and one bet; small enough that play can be judged exactly.",
    agents=2,
)
