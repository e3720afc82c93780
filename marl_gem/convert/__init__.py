"""To PettingZoo and Gymnasium, and from them: their tools run on our envs, their envs run in ours.

    to_aec(env)             a `pettingzoo.AECEnv`: agents act one after the other
    to_parallel(env)        a `pettingzoo.ParallelEnv`, for envs in which everybody acts at once
    to_gymnasium(env)       a `gymnasium.Env` for one agent; functions may fill the other seats
    to_numeric(env)         any of these three with actions by number, masks, and observations as arrays
    from_pettingzoo(env)    an AEC or parallel env as a `MultiAgentEnv`, observed and played in text
    from_gymnasium(env)     a Gymnasium env likewise, with one agent
    FreeText, Content       the spaces of actions and observations that are text
    HashedWords, TextBytes  observations as arrays; NumericCodec holds the actions and the encoder of an env

Both libraries come with the extra `pettingzoo`. They are loaded when one of these names is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marl_gem.errors import MissingPackage
from marl_gem.lazy import lazy_names

if TYPE_CHECKING:
    from marl_gem.convert.encoders import HashedWords, TextBytes
    from marl_gem.convert.foreign import from_gymnasium, from_pettingzoo
    from marl_gem.convert.gymnasium import to_gymnasium
    from marl_gem.convert.numeric import NumericCodec, to_numeric
    from marl_gem.convert.pettingzoo import to_aec, to_parallel
    from marl_gem.convert.spaces import Content, FreeText

__all__ = [
    "Content",
    "FreeText",
    "HashedWords",
    "NumericCodec",
    "TextBytes",
    "from_gymnasium",
    "from_pettingzoo",
    "to_aec",
    "to_gymnasium",
    "to_numeric",
    "to_parallel",
]

_MODULES = {
    "Content": "spaces",
    "FreeText": "spaces",
    "HashedWords": "encoders",
    "NumericCodec": "numeric",
    "TextBytes": "encoders",
    "from_gymnasium": "foreign",
    "from_pettingzoo": "foreign",
    "to_aec": "pettingzoo",
    "to_gymnasium": "gymnasium",
    "to_numeric": "numeric",
    "to_parallel": "pettingzoo",
}


_import, __dir__ = lazy_names(__name__, _MODULES)


def __getattr__(name: str) -> Any:
    """Import the module that defines `name`.

    Raises:
        MissingPackage: it needs a package that is not installed.
    """
    try:
        return _import(name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in ("gymnasium", "numpy", "pettingzoo"):
            raise
        raise MissingPackage(package, "pettingzoo", f"marl_gem.convert.{name}") from error
