"""Registers GEM's families `eval:` and `logic:`, whose data are in files."""

from marl_gem.scenarios.tasks import gem
from marl_gem.scenarios.tasks.registration import register_question_policies

for _family in ("eval", "logic"):
    gem.register_sets(_family)
    register_question_policies(_family)
