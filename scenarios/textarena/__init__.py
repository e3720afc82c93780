"""TextArena's games, as `ta:<Name>-v0`. TextArena itself is imported when the first one is made."""

from marl_gem.registry import register, register_analysis, register_policy
from marl_gem.scenarios.textarena import catalog

for _game, _entry in catalog.entries().items():
    register(
        f"ta:{_game}",
        "marl_gem.scenarios.textarena.env:TextArenaEnv",
        description=catalog.title(_game),
        agents=(min(_entry.players, default=1), max(_entry.players, default=1)),
        turn_order="sequential",
        unavailable=catalog.unavailable(_entry),
        game=_game,
    )

register_policy(
    "ta:TicTacToe-v0",
    "perfect",
    "marl_gem.scenarios.games.tictactoe_analysis:policy",
    description="Never loses: one of the best moves, drawn at random.",
    marks="OX",
)
register_analysis(
    "ta:TicTacToe-v0",
    "marl_gem.scenarios.games.tictactoe_analysis:analyse",
    description="lost_to_perfect/player_0: the share of games that the policy, moving first, loses to perfect play; "
    "lost_to_perfect/player_1: the same, moving second; lost_to_perfect: the mean of both.",
    marks="OX",
)
