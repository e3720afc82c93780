"""What is played, and who sits where in it.

A seat is held by a policy that learns, named as one likes, or by one that does not: `random`, or `scripted:NAME`,
which comes with the scenario. Where nothing is said one policy holds all seats: self-play. With a name for each seat
it is co-evolution. Phases let seats change hands in the course of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from marl_gem import registry
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError
from marl_gem.policies import Policy, RandomPolicy
from marl_gem.trainers.config import TrainConfig, learns, read, recipes

ONE = "policy"
"""What the policy is called that holds all seats."""
STEPS = 100
"""How far into a game `check` looks."""


class Ground(NamedTuple):
    """A scenario, and the options it is made with."""

    scenario: str
    options: Mapping[str, Any]

    def make(self) -> MultiAgentEnv:
        """A fresh env."""
        return registry.make(self.scenario, **self.options)

    @property
    def agents(self) -> tuple[str, ...]:
        """The ids of all seats."""
        return tuple(self.make().possible_agents)

    def fixed(self, who: str) -> Policy:
        """A policy that does not learn.

        Raises:
            RegistryError: the scenario has no scripted policy of this name; the message tells which it has.
        """
        if who == "random":
            return RandomPolicy()
        return registry.make_policy(self.scenario, who.removeprefix("scripted:"), self.options)


def training_ground(config: TrainConfig) -> Ground:
    """Where a run learns."""
    return Ground(config.scenario, config.options)


def test_ground(config: TrainConfig) -> Ground:
    """Where a run is measured: the same, apart from the options that the record sets."""
    return Ground(config.scenario, {**config.options, **config.record.options})


class Phase(NamedTuple):
    """The updates from `start` up to, not including, `end`, and who holds each seat in them."""

    start: int
    end: int
    seats: dict[str, str]

    @property
    def learning(self) -> dict[str, str]:
        """The seats whose policies learn, and these policies' names."""
        return {seat: who for seat, who in self.seats.items() if learns(who)}

    @property
    def learners(self) -> tuple[str, ...]:
        """The names of the policies that learn."""
        return tuple(dict.fromkeys(self.learning.values()))


def phases(config: TrainConfig, agents: Sequence[str]) -> list[Phase]:
    """The phases of a run, in order; one at least.

    Args:
        agents: the scenario's.

    Raises:
        ConfigError: a seat is none of the scenario's or nobody's, or nobody learns in some phase.
    """
    seats = {**config.seats} or dict.fromkeys(agents, ONE)
    named = {*config.seats, *config.imitation.seats, *(seat for phase in config.phases for seat in phase.seats)}
    if strangers := sorted(named - set(agents)):
        raise ConfigError(
            f"{config.scenario} has no agent {', '.join(map(repr, strangers))}; its agents are {', '.join(agents)}"
        )
    if empty := [agent for agent in agents if agent not in seats]:
        raise ConfigError(f"seats: nobody holds the seat of {', '.join(map(repr, empty))}; name a policy or random")
    starts = [0, *(phase.start for phase in config.phases)]
    ends = [*starts[1:], config.self_play.updates]
    found = []
    for start, end, changes in zip(starts, ends, [{}, *(phase.seats for phase in config.phases)], strict=True):
        seats = {**seats, **changes}
        found.append(Phase(start, end, seats))
        if not found[-1].learning:
            raise ConfigError(f"nobody learns from update {start} on; seat a policy by a name of your own")
    return found


def learners(all_phases: Sequence[Phase]) -> dict[str, tuple[str, ...]]:
    """The policies that learn at any time, by name, and the seats that each of them ever holds."""
    seats: dict[str, dict[str, None]] = {}
    for phase in all_phases:
        for seat, who in phase.learning.items():
            seats.setdefault(who, {})[seat] = None
    return {who: tuple(held) for who, held in seats.items()}


def check(config: TrainConfig) -> None:
    """Make once what the run will need, so that what cannot be made is told before anything is written.

    Raises:
        RegistryError, MissingPackage: the scenario or a seat's policy cannot be made.
        ConfigError: a seat makes no sense, an agent joins that nobody plays, or there is no random play where it is
            needed.
    """
    for ground in (training_ground(config), test_ground(config)):
        every = phases(config, ground.agents)
        trained = learners(every)
        for who in {*(who for phase in every for who in phase.seats.values()), *config.imitation.seats.values()}:
            if who not in trained:
                ground.fixed(who)
        if same := sorted(trained.keys() & registry.policies(config.scenario).keys()):
            raise ConfigError(
                f"a policy that learns is called {same[0]!r}, as one that {config.scenario} offers; write "
                f"scripted:{same[0]} to seat that one, or choose another name"
            )
    _walk_through(config)


def _walk_through(config: TrainConfig) -> None:
    """Begin a game, whatever the moves, and look at everyone who acts in it."""
    env = training_ground(config).make()
    seats = tuple(env.possible_agents)
    env.reset(seed=0)
    for _ in range(STEPS):
        actions = {}
        for agent in env.acting:
            if agent not in seats:
                raise ConfigError(
                    f"{config.scenario}: {agent!r} joins in the middle of an episode, but only the seats of those with "
                    f"whom it begins can be trained ({', '.join(seats)})"
                )
            legal = env.legal_actions(agent)
            if legal is None and _sits_at_random(config, agent):
                raise ConfigError(_no_random_play(config.scenario, agent))
            actions[agent] = legal[0] if legal else ""
        if env.done:
            return
        env.step(actions)


def _sits_at_random(config: TrainConfig, agent: str) -> bool:
    """Whether random play holds this seat at any time: to be imitated, to play with or to compare with."""
    imitates = bool(config.imitation.steps) or not config.policy.start_from
    return (
        not config.seats
        or (imitates and config.imitation.seats.get(agent, "random") == "random")
        or any(seats.get(agent) == "random" for seats in (config.seats, *(phase.seats for phase in config.phases)))
    )


def _no_random_play(scenario: str, agent: str) -> str:
    offered = [f"scripted:{name}" for name in registry.policies(scenario)]
    fitting = [f", or take the recipe {name}" for name in recipes() if read(name)["scenario"] == scenario]
    return (
        f"{scenario} does not say what is legal for {agent!r}, so there is no random play to imitate, to play with or "
        f"to compare with. Name who holds the seats (seats.{agent}=...) and whom to imitate "
        f"(imitation.seats.{agent}=...; it offers {', '.join(offered) or 'none'}){''.join(fitting)}"
    )
