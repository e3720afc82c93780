"""What of a run's configuration is used when its policy is only played: names of scenarios and seats, and the prompts.

A checkpoint may come from somebody else. So this part of its configuration is read without looking at the rest: no
scenario is imported, no wrapper, algorithm or other policy is looked up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from marl_gem.errors import ConfigError
from marl_gem.specs import is_learner_name
from marl_gem.trainers.config import canonical
from marl_gem.trainers.policy_tables import policy_config
from marl_gem.trainers.schedule import SHARED_POLICY
from marl_gem.trainers.sections import PolicyConfig
from marl_gem.views import view


class PlayedScenario(msgspec.Struct, frozen=True):
    """See `config.TrainingScenario`."""

    id: str
    options: dict[str, Any] = {}
    seats: dict[str, str] = {}


class PlayedPhase(msgspec.Struct, frozen=True):
    """See `config.PhaseConfig`."""

    start: int
    seats: dict[str, str]


class PlayedConfig(msgspec.Struct, frozen=True):
    """See `config.TrainConfig`; fields that are not used are ignored."""

    scenarios: tuple[PlayedScenario, ...]
    seats: dict[str, str] = {}
    phases: tuple[PlayedPhase, ...] = ()
    policy: PolicyConfig = PolicyConfig()
    policies: dict[str, dict[str, Any]] = {}

    def of(self, name: str) -> PolicyConfig:
        """The section `policy` as it holds for one policy."""
        return policy_config(self.policy, self.policies.get(name, {}))

    @property
    def title(self) -> str:
        """The scenarios' ids."""
        return " + ".join(scenario.id for scenario in self.scenarios)

    def holders(self, scenario: int, agents: Sequence[str], updates: int) -> dict[str, str]:
        """For each seat that is trained the policy that trained in it last, or will be the first to.

        Args:
            scenario: an index of `scenarios`.
            agents: the scenario's.
            updates: how many there have been.
        """
        named = {**self.seats, **self.scenarios[scenario].seats}
        seating = {seat: who for seat, who in named.items() if seat in agents}
        seating = seating or dict.fromkeys(agents, SHARED_POLICY)
        seatings = [(0, seating)]
        for phase in self.phases:
            seating = {seat: phase.seats.get(seat, who) for seat, who in seating.items()}
            seatings.append((phase.start, seating))
        begun = [seating for start, seating in seatings if start < updates]
        holders: dict[str, str] = {}
        for seating in [*(later for _, later in reversed(seatings[len(begun) :])), *begun]:  # the last count most
            holders |= {seat: who for seat, who in seating.items() if is_learner_name(who)}
        return holders


def parse_played(values: dict[str, Any], source: str) -> PlayedConfig:
    """This part of a configuration, as a run has stored it.

    Raises:
        ConfigError: a value makes no sense; the message opens with `source` and names it.
    """
    try:
        config = msgspec.convert(canonical(values, source), PlayedConfig)
        played = [config.policy, *map(config.of, config.policies)]
    except (msgspec.ValidationError, UnicodeError) as error:
        raise ConfigError(f"{source}: {error}") from error
    for policy in played:
        if not math.isfinite(policy.temperature):
            raise ConfigError(f"{source}: policy.temperature is a finite number, not {policy.temperature}")
        view(policy.view)
    return config
