"""How many episodes can be live at once, as far as open files allow it."""

from __future__ import annotations

import logging
from contextlib import suppress

from marl_gem.errors import ConfigError
from marl_gem.evaluation.plan import Plan
from marl_gem.open_files import count_open_files, file_limit, files_left

MOST_FILES = 16
"""Where so many files are left for each episode, it is not looked how many an env needs."""

_log = logging.getLogger(__name__)


def episodes_that_fit(plan: Plan, wanted: int) -> int:
    """How many episodes one process can play at once; says so in a line if that is fewer than `wanted`.

    The files of an env are counted, by making one, only where few are left. Connections to models are not counted
    here: `HTTPClient` opens no more than fit, and other calls wait.

    Raises:
        ConfigError: not even one fits.
    """
    left = files_left(wanted * MOST_FILES)
    if left == wanted * MOST_FILES:
        return wanted
    each = _files_of_an_env(plan)
    fitting = min(wanted, left // each) if each > 0 else wanted
    if fitting < 1:
        raise ConfigError(f"no episode of {plan.info.scenario} can be played: {file_limit(1024)}")
    if fitting < wanted:
        advice = file_limit(wanted * MOST_FILES)
        _log.warning("%d episodes at once instead of %d: %s", fitting, wanted, advice)
    return fitting


def _files_of_an_env(plan: Plan) -> int:
    """How many files an env has open after its reset. What it raises comes up again when it is played."""
    job = plan.job(next(iter(plan.slots.values())))
    before = count_open_files()
    with suppress(Exception):
        env = plan.scenario.make()
        try:
            env.reset(job.seed, job.options)
            return count_open_files() - before
        finally:
            env.close()
    return 0
