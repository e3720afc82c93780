"""TAU-bench with two real agents, a customer and an assistant, as `tau:<Name>-v0`."""

from pathlib import Path

from marl_gem.registry import register, register_policy
from marl_gem.scenarios.tau import data_folder
from marl_gem.scenarios.tau.registration import (
    register_domain,
    register_named,
    register_scripts,
    register_strategies,
)

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
        unavailable=data_folder.missing(_name),
        name=_name,
    )
    register(
        f"tau:{_name}-mini-v0",
        _MAKE,
        description=f"TAU-bench's tools on a small generated data set that ships with marl_gem: {_what}.",
        agents=2,
        turn_order="sequential",
        unavailable="" if (_MINI / _name / "policy.md").is_file() else "its world is still being made",
        name=f"{_name}-mini",
    )

register(
    "tau:desk-v0",
    _MAKE,
    description="A help desk for parcels with short dialogues: tiny models learn both seats from scratch.",
    agents=2,
    turn_order="sequential",
    name="desk",
    max_actions=8,
)
for _skill, _what in {
    "expert": "Solves every task in either seat, from what the seat is shown alone.",
    "novice": "Uses the right phrases and calls at random times; an expert in a third of its turns.",
}.items():
    register_policy(
        "tau:desk-v0", _skill, "marl_gem.scenarios.tau.desk.experts:policy", description=_what, skill=_skill
    )

register_scripts("tau")
register_strategies("tau")
register_named()
