"""Conformance checks: play a scenario, and say which promise of the contract it breaks.

    from marl_gem.testing import check_env

    def test_my_env():
        check_env(MyEnv).raise_if_failed()

Every check is a function too: `check_purity(MyEnv)` raises `PromiseBroken` or returns. A playthrough is an episode
written as text and kept with the tests; `replay` plays it again and gives the text as it is now.
"""

from marl_gem.testing.actions import check_hostile_actions, check_wrong_actions
from marl_gem.testing.episodes import (
    check_ending,
    check_forking,
    check_isolation,
    check_lifecycle,
    check_plays,
    check_processes,
    check_purity,
    check_render,
    check_reset,
    check_seeding,
)
from marl_gem.testing.messages import check_messages
from marl_gem.testing.playthrough import playthrough, playthrough_file, replay
from marl_gem.testing.random_play import THOROUGH, Make, Plan
from marl_gem.testing.report import CHECKS, CheckReport, CheckResult, check_env, run_checks
from marl_gem.testing.results import (
    check_dicts,
    check_infos,
    check_lasting,
    check_legal_actions,
    check_metadata,
    check_observations,
    check_records,
    check_rewards,
    check_roles,
)

__all__ = [
    "CHECKS",
    "THOROUGH",
    "CheckReport",
    "CheckResult",
    "Make",
    "Plan",
    "check_dicts",
    "check_ending",
    "check_env",
    "check_forking",
    "check_hostile_actions",
    "check_infos",
    "check_isolation",
    "check_lasting",
    "check_legal_actions",
    "check_lifecycle",
    "check_messages",
    "check_metadata",
    "check_observations",
    "check_plays",
    "check_processes",
    "check_purity",
    "check_records",
    "check_render",
    "check_reset",
    "check_rewards",
    "check_roles",
    "check_seeding",
    "check_wrong_actions",
    "playthrough",
    "playthrough_file",
    "replay",
    "run_checks",
]
