"""From a name to an env, a wrapper, a policy or a strategy.

A scenario's id is `family:Name-vN`. A family is a plug-in: an entry point of the group `marl_gem.scenarios`, named like
the family, whose module registers its scenarios when it is first asked for. So another package adds a family with one
line in its pyproject.toml, and nothing here knows a scenario by name.

    scenarios.py   register, get, find, make, list; load_function
    wrappers.py    register_wrapper, wrappers, WrapperSpec
    offers.py      what comes with a scenario: scripted policies and strategies
    meanings.py    what the options of a scenario mean
    analyses.py    exact analyses of how well policies play a scenario
    tables.py      where registrations are kept, and how plug-ins are loaded
"""

from marl_gem.registry.analyses import RegisteredAnalysis, analyse, analysis, register_analysis
from marl_gem.registry.meanings import is_plain_option, option_meanings, option_types
from marl_gem.registry.offers import (
    Need,
    RegisteredPolicy,
    RegisteredStrategy,
    make_policy,
    make_strategy,
    policies,
    register_policy,
    register_strategy,
    strategies,
)
from marl_gem.registry.scenarios import RegisteredScenario, find, get, list, load_function, make, options, register
from marl_gem.registry.tables import GROUP, preserved
from marl_gem.registry.wrappers import RegisteredWrapper, WrapperSpec, register_wrapper, wrappers

__all__ = [
    "GROUP",
    "Need",
    "RegisteredAnalysis",
    "RegisteredPolicy",
    "RegisteredScenario",
    "RegisteredStrategy",
    "RegisteredWrapper",
    "WrapperSpec",
    "analyse",
    "analysis",
    "find",
    "get",
    "is_plain_option",
    "list",
    "load_function",
    "make",
    "make_policy",
    "make_strategy",
    "option_meanings",
    "option_types",
    "options",
    "policies",
    "preserved",
    "register",
    "register_analysis",
    "register_policy",
    "register_strategy",
    "register_wrapper",
    "strategies",
    "wrappers",
]
