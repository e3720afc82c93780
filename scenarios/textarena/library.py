"""Imports TextArena, or raises MissingPackage with the command that installs it."""

from __future__ import annotations

from marl_gem.errors import MissingPackage

try:
    import textarena as textarena
    from textarena import ObservationType as Kind
    from textarena.envs.registration import ENV_REGISTRY as GAMES
except ImportError as error:
    if error.name != "textarena":
        raise
    raise MissingPackage("textarena", "textarena", "Every scenario of the family ta:") from None

__all__ = ["GAMES", "Kind", "textarena"]
