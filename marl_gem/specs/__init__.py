"""Scenarios and policies as records: a text is parsed once, at the border, and a frozen record goes on from there.

    scenario.py   ScenarioSpec: an id, its options and wrappers; ScenarioInfo: what one look at an env gives
    policy.py     PolicySpec: who plays, from `WHO[,NAME=VALUE...]`
    values.py     the values that a policy's text may set
    seats.py      which policy is which agent, from `AGENT=WHO`
    loading.py    from a PolicySpec to a policy

The command line, evaluation and training all use these.
"""

from marl_gem.registry import WrapperSpec
from marl_gem.specs.loading import load_policies, load_policy, training_options
from marl_gem.specs.policy import RANDOM, PolicySpec, is_learner_name
from marl_gem.specs.scenario import ScenarioInfo, ScenarioSpec
from marl_gem.specs.seats import assign_candidates, assign_seats, parse_assignment

__all__ = [
    "RANDOM",
    "PolicySpec",
    "ScenarioInfo",
    "ScenarioSpec",
    "WrapperSpec",
    "assign_candidates",
    "assign_seats",
    "is_learner_name",
    "load_policies",
    "load_policy",
    "parse_assignment",
    "training_options",
]
