"""TAU-bench with two real agents, a customer and an assistant, as `tau:<Name>-v0`."""

from pathlib import Path

from marl_gem.registry import register, register_policy
from marl_gem.scenarios.tau import official
from marl_gem.scenarios.tau.registration import register_domain, register_named, register_scripts
from marl_gem.scenarios.tau.strategies import register_strategies

__all__ = ["register_domain"]

_MINI = Path(__file__).parent / "mini"
_MAKE = "marl_gem.scenarios.tau.catalog:make"

for _name, _what in (("retail", "an online shop"), ("airline", "an airline")):
    register(
        f"tau:{_name}-v0",
        _MAKE,
        description=f"TAU-bench: a customer of {_what} and an assistant with tools, both agents.",
        agents=2,
        turn_order="sequential",
        unavailable=official.missing(_name),
        name=_name,
    )
    register(
        f"tau:{_name}-mini-v0",
        _MAKE,
        description=f"TAU-bench with a small world of our own, nothing to download: {_what}.",
        agents=2,
        turn_order="sequential",
        unavailable="" if (_MINI / _name / "policy.md").is_file() else "its world is still being made",
        name=f"{_name}-mini",
    )

register(
    "tau:desk-v0",
    _MAKE,
    description="A help desk for parcels: dialogues so short that tiny models learn both seats from scratch.",
    agents=2,
    turn_order="sequential",
    name="desk",
    max_actions=8,
)
for _skill, _what in {
    "expert": "Does well in either seat, and reads nothing but what the seat is shown.",
    "novice": "Knows how things are said and called, but not when.",
}.items():
    register_policy(
        "tau:desk-v0", _skill, "marl_gem.scenarios.tau.desk.experts:policy", description=_what, skill=_skill
    )

register_scripts("tau")
register_strategies("tau")
register_named()
