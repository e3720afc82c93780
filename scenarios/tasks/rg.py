"""Registers ReasoningGym's tasks as `rg:<name>`, as GEM names them."""

from importlib.util import find_spec

from marl_gem.registry import register
from marl_gem.scenarios.tasks.reasoning_levels import highest_levels
from marl_gem.scenarios.tasks.registration import register_question_policies

_MISSING = "" if find_spec("reasoning_gym") else "reasoning-gym is not installed: pip install 'marl-gem[reasoning]'"

for _name, _highest in highest_levels().items():
    _levels = f" Levels 0 to {_highest}." if _highest >= 0 else ""
    register(
        f"rg:{_name}",
        "marl_gem.scenarios.tasks.reasoning:Reasoning",
        description=f"ReasoningGym: {_name.replace('_', ' ')}.{_levels}",
        agents=1,
        turn_order="sequential",
        unavailable=_MISSING,
        name=_name,
    )
register(
    "rg:all",
    "marl_gem.scenarios.tasks.reasoning:ReasoningSuite",
    description="ReasoningGym: all tasks in one, or those whose names fit; a report has each by its name.",
    agents=1,
    turn_order="sequential",
    unavailable=_MISSING,
)
register_question_policies("rg")
