"""What is registered of questions, so that plug-ins need not import them."""

from __future__ import annotations

from marl_gem.registry import register_policy


def register_question_policies(scenario: str) -> None:
    """Register the policies of `policies.py` for a scenario or a family."""
    for script, what in {
        "gold": "Gives the answer of the item.",
        "guess": "Trivial baseline: gives the answer of another item, drawn at random.",
    }.items():
        entry_point = "marl_gem.scenarios.tasks.policies:policy"
        register_policy(scenario, script, entry_point, description=what, script=script)
