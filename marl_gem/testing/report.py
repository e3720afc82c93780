"""All checks on one env, told like a test run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError, PromiseBroken
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
from marl_gem.testing.play import THOROUGH, Make, Parted, Plan, PlayFailed, in_one_line

Check: TypeAlias = Callable[[Make, Plan], str | None]
"""Raises PromiseBroken; answers why there was nothing to check, or None."""

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
        check_isolation,
        check_processes,
        check_forking,
        check_reset,
        check_lifecycle,
        check_wrong_actions,
        check_hostile_actions,
        check_legal_actions,
        check_ending,
        check_metadata,
    )
}
"""Every check by its name, in the order in which they run."""


@dataclass(frozen=True)
class Outcome:
    """What one check found. `told` says what was seen if it failed, and why if it was skipped."""

    check: str
    status: Literal["ok", "FAILED", "skipped"]
    told: str = ""
    seconds: float = 0.0

    @property
    def promise(self) -> str:
        """What the check holds an env to."""
        return str(CHECKS[self.check].__doc__).partition("\n")[0]

    def __str__(self) -> str:
        start = f"{self.status:<7}  {self.check:<15}  "
        if self.status == "skipped":
            return start + self.told
        return start + self.promise + "".join(f"\n{'':9}{line}" for line in self.told.splitlines())


@dataclass(frozen=True)
class Report:
    """What all checks found."""

    scenario: str
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.status == "FAILED")

    def raise_if_failed(self) -> None:
        """For tests: nothing if all is well.

        Raises:
            PromiseBroken: a check failed; the message tells what every one that failed has seen.
        """
        if self.failed:
            raise PromiseBroken("\n".join([f"{self.scenario} breaks its promises", *map(str, self.failed)]))

    def __str__(self) -> str:
        return "\n".join([self.scenario, *map(str, self.outcomes), self.summary])

    @property
    def summary(self) -> str:
        """One line: how many checks ended how, and how long they took."""
        counts = {status: [o.status for o in self.outcomes].count(status) for status in ("ok", "FAILED", "skipped")}
        told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return f"{told} in {sum(outcome.seconds for outcome in self.outcomes):.1f} s"


def check_env(make: Make, plan: Plan = THOROUGH, *, only: Sequence[str] = ()) -> Report:
    """Hold an env to the contract's promises, by playing it.

        report = check_env(lambda: marl_gem.make("game:KuhnPoker-v0"))
        report.raise_if_failed()

    Args:
        make: gives a fresh env.
        plan: how much is played.
        only: names of checks, if not all of `CHECKS` shall run.

    Raises:
        ConfigError: there is no such check, or `make` does not give a fresh env each time.
        Whatever `make` raises when it is first called.
    """
    return Report(_name(make), tuple(run_checks(make, plan, only=only)))


def run_checks(make: Make, plan: Plan = THOROUGH, *, only: Sequence[str] = ()) -> Iterator[Outcome]:
    """The checks, one after the other, as they are done. A check is skipped if what it builds on has failed."""
    if unknown := [name for name in only if name not in CHECKS]:
        raise ConfigError(f"there is no check {unknown[0]!r}; choose from {', '.join(CHECKS)}")
    _name(make)
    failed: set[str] = set()
    for name in only or CHECKS:
        started = time.perf_counter()
        status, seen = _run(CHECKS[name], make, plan, failed)
        if status == "FAILED":
            failed.add(name)
        yield Outcome(name, status, seen, time.perf_counter() - started)


def _name(make: Make) -> str:
    """What the env is called. Refuses what makes none."""
    if not callable(make):
        raise ConfigError(f"make is a class or function that gives a fresh env, not {make!r}")
    env, other = make(), make()
    if not isinstance(env, MultiAgentEnv):
        raise ConfigError(f"make gave {env!r}, which is no MultiAgentEnv")
    if env is other:
        raise ConfigError(f"make gave the same {env.scenario} twice; it should give a fresh one each time")
    env.close()
    other.close()
    return env.scenario


def _run(check: Check, make: Make, plan: Plan, failed: set[str]) -> tuple[Literal["ok", "FAILED", "skipped"], str]:
    try:
        reason = check(make, plan)
    except Parted as error:
        return ("skipped", "episodes do not repeat: see seeding") if "seeding" in failed else ("FAILED", str(error))
    except PlayFailed as error:
        return ("skipped", "it cannot be played: see plays") if "plays" in failed else ("FAILED", str(error))
    except PromiseBroken as error:
        return "FAILED", str(error)
    except Exception as error:
        return ("skipped", "it cannot be played: see plays") if "plays" in failed else ("FAILED", in_one_line(error))
    return ("skipped", reason) if reason else ("ok", "")
