"""Games of our own, as `game:<Name>-v0`."""

from marl_gem.registry import register

register(
    "game:KuhnPoker-v0",
    "marl_gem.scenarios.games.kuhn_poker:KuhnPoker",
    description="Poker with three cards and one bet; small enough that play can be judged exactly.",
    agents=2,
)

register(
    "game:TicTacToe-v0",
    "marl_gem.scenarios.games.tictactoe:TicTacToe",
    description="Three in a row; a hundred lines, made for speed and as a model to write others by.",
    agents=2,
)
