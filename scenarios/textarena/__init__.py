"""TextArena's games, as `ta:<Name>-v0`. TextArena itself is imported when the first one is made."""

from marl_gem.registry import register
from marl_gem.scenarios.textarena import catalog

for _game, _entry in catalog.entries().items():
    register(
        f"ta:{_game}",
        "marl_gem.scenarios.textarena.env:TextArenaEnv",
        description=catalog.title(_game),
        agents=(min(_entry.players, default=1), max(_entry.players, default=1)),
        unavailable=catalog.unavailable(_entry),
        game=_game,
    )
