"""TAU-bench with two real agents, a customer and an assistant, as `tau:<Name>-v0`."""

from marl_gem.registry import register
from marl_gem.scenarios.tau import official

_MAKE = "marl_gem.scenarios.tau.catalog:make"

for _name, _what in (("retail", "an online shop"), ("airline", "an airline")):
    register(
        f"tau:{_name}-v0",
        _MAKE,
        description=f"TAU-bench: a customer of {_what} and an assistant with tools, both agents.",
        agents=2,
        unavailable=official.missing(_name),
        name=_name,
    )
    register(
        f"tau:{_name}-mini-v0",
        _MAKE,
        description=f"The same with a small world of our own: {_what}, nothing to download.",
        agents=2,
        name=f"{_name}-mini",
    )
