"""Run all checks on one env, and report like a test run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError, PromiseBroken
from marl_gem.faults import FAULTS, close_env, shown
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
from marl_gem.testing.random_play import THOROUGH, EpisodesDiffer, Make, Plan, PlayFailed, in_one_line
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

Check: TypeAlias = Callable[[Make, Plan], str | None]
"""Raises PromiseBroken; returns why there was nothing to check, or None."""

CHECKS: dict[str, Check] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_plays,
        check_seeding,
        check_dicts,
        check_infos,
        check_observations,
        check_lasting,
        check_roles,
        check_rewards,
        check_records,
        check_purity,
        check_render,
        check_isolation,
        check_processes,
        check_forking,
        check_reset,
        check_lifecycle,
        check_wrong_actions,
        check_hostile_actions,
        check_legal_actions,
        check_messages,
        check_ending,
        check_metadata,
    )
}
"""Every check by its name, in the order in which they run."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    check: str
    status: Literal["ok", "FAILED", "skipped"]
    details: str = ""
    """What the check saw if it failed; why, if it was skipped."""

    seconds: float = 0.0
    """How long it took."""

    @property
    def promise(self) -> str:
        """The promise that the check is about, in one sentence."""
        return str(CHECKS[self.check].__doc__).partition("\n")[0]

    def __str__(self) -> str:
        start = f"{self.status:<7}  {self.check:<15}  "
        if self.status == "skipped":
            return start + self.details
        return start + self.promise + "".join(f"\n{'':9}{line}" for line in self.details.splitlines())


@dataclass(frozen=True)
class CheckReport:
    """The results of all checks."""

    scenario: str
    results: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if result.status == "FAILED")

    def raise_if_failed(self) -> None:
        """For tests: raise if a check failed.

        Raises:
            PromiseBroken: a check failed; the message holds what every failed check saw.
        """
        if self.failed:
            raise PromiseBroken("\n".join([f"{self.scenario} breaks its promises", *map(str, self.failed)]))

    def __str__(self) -> str:
        return "\n".join([self.scenario, *map(str, self.results), self.summary])

    @property
    def summary(self) -> str:
        """One line: the number of checks with each status, and the time that they took."""
        counts = {
            status: [result.status for result in self.results].count(status) for status in ("ok", "FAILED", "skipped")
        }
        text = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return f"{text} in {sum(result.seconds for result in self.results):.1f} s"


def check_env(make: Make, plan: Plan = THOROUGH, *, only: Sequence[str] = ()) -> CheckReport:
    """Check that an env keeps the promises of the contract, by playing it.

        report = check_env(lambda: marl_gem.make("game:KuhnPoker-v0"))
        report.raise_if_failed()

    Args:
        make: a class or function that gives a fresh env at each call.
        plan: how much is played.
        only: names of checks to run; by default all of `CHECKS`.

    Raises:
        ConfigError: there is no such check, or `make` does not give a fresh env each time.
        Exception: what `make` raises when it is first called.
    """
    return CheckReport(_name(make), tuple(run_checks(make, plan, only=only)))


def run_checks(make: Make, plan: Plan = THOROUGH, *, only: Sequence[str] = ()) -> Iterator[CheckResult]:
    """Run the checks and yield each result when it is known. A check is skipped if one that it relies on failed."""
    if unknown := [name for name in only if name not in CHECKS]:
        raise ConfigError(f"there is no check {unknown[0]!r}; choose from {', '.join(CHECKS)}")
    _name(make)
    failed: set[str] = set()
    for name in only or CHECKS:
        started = time.perf_counter()
        status, details = _run(CHECKS[name], make, plan, failed)
        if status == "FAILED":
            failed.add(name)
        yield CheckResult(name, status, details, time.perf_counter() - started)


def _name(make: Make) -> str:
    """The id of the env that `make` gives; raises if it gives none."""
    if not callable(make):
        raise ConfigError(f"make is a class or function that gives a fresh env, not {shown(make)}")
    env, other = make(), make()
    if not isinstance(env, MultiAgentEnv):
        raise ConfigError(f"make gave {shown(env)}, which is no MultiAgentEnv")
    if env is other:
        raise ConfigError(f"make gave the same {env.scenario} twice; it must give a fresh one each time")
    close_env(env)
    close_env(other)
    return env.scenario


def _run(check: Check, make: Make, plan: Plan, failed: set[str]) -> tuple[Literal["ok", "FAILED", "skipped"], str]:
    try:
        reason = check(make, plan)
    except EpisodesDiffer as error:
        return ("skipped", "episodes do not repeat: see seeding") if "seeding" in failed else ("FAILED", str(error))
    except PlayFailed as error:
        return ("skipped", "it cannot be played: see plays") if "plays" in failed else ("FAILED", str(error))
    except PromiseBroken as error:
        return "FAILED", str(error)
    except FAULTS as error:
        return ("skipped", "it cannot be played: see plays") if "plays" in failed else ("FAILED", in_one_line(error))
    return ("skipped", reason) if reason else ("ok", "")
