"""Does a scenario keep the contract's promises? Checks that play it and say what they saw.

    from marl_gem.testing import check_env

    def test_my_env():
        check_env(MyEnv).raise_if_failed()

Every check is a function too: `check_purity(MyEnv)` raises `PromiseBroken` or returns. A playthrough is the
record of one episode as text, kept with the tests: `replay` plays it again and tells what has changed.
"""

from marl_gem.testing.actions import check_hostile_actions, check_wrong_actions
from marl_gem.testing.answers import (
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
from marl_gem.testing.course import (
    check_ending,
    check_forking,
    check_isolation,
    check_lifecycle,
    check_plays,
    check_processes,
    check_purity,
    check_reset,
    check_seeding,
)
from marl_gem.testing.play import THOROUGH, Make, Plan
from marl_gem.testing.playthrough import playthrough, playthrough_file, replay
from marl_gem.testing.report import CHECKS, Outcome, Report, check_env, run_checks

__all__ = [
    "CHECKS",
    "THOROUGH",
    "Make",
    "Outcome",
    "Plan",
    "Report",
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
    "check_metadata",
    "check_observations",
    "check_plays",
    "check_processes",
    "check_purity",
    "check_records",
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
