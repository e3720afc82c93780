"""What is checked before a run begins, so that what cannot work is an error before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from transformers import GPT2LMHeadModel, PreTrainedModel

from marl_gem import registry
from marl_gem.errors import ConfigError, UnknownScenario
from marl_gem.faults import close_env
from marl_gem.specs import ScenarioSpec, load_policy
from marl_gem.trainers.config import read, recipes
from marl_gem.trainers.learner import device
from marl_gem.trainers.memory_plan import MemoryPlan, check_memory
from marl_gem.trainers.policy_algorithms import group_size, make_algorithms
from marl_gem.trainers.policy_tables import for_policy, policy_names
from marl_gem.trainers.schedule import learner_seats, shares, training_phases
from marl_gem.trainers.sections import PolicyConfig, TrainConfig, TrainingScenario
from marl_gem.trainers.starting_point import check_start, imitators, start_text
from marl_gem.trainers.tiny import VOCABULARY, tiny_config
from marl_gem.trainers.trackers import check_trackers

STEPS = 100
"""How far into an episode the check looks."""


def check(config: TrainConfig) -> MemoryPlan:
    """Make once what the run will need.

    Returns:
        what it needs of memory.

    Raises:
        RegistryError, MissingPackage: a scenario or a seat's policy cannot be made.
        ConfigError: a seat makes no sense, a scenario would have no episodes, an agent joins that nobody plays, there
            is no random play where it is needed, the model to start from cannot be read, or the device is not there
            or too small.
    """
    check_trackers(config.trackers)
    device(config.device)
    phases = training_phases(config, [scenario.spec.inspect().agents for scenario in config.scenarios])
    learners = learner_seats(phases)
    if config.sampler != "in_process":
        from marl_gem.trainers.serving import check_sampler  # needs aiohttp

        check_sampler(config, len(learners))
    networks = {
        name: check_start(config, name) if start_text(config, name) else _tiny(for_policy(config, name).policy)
        for name in learners
    }
    _check_shares(config)
    _check_imitated(config)
    _check_partners(config)
    for index, scenario in enumerate(config.scenarios):
        fixed = {*(who for phase in phases for who in phase.seatings[index].values()), *config.imitation.seats.values()}
        for spec in (scenario.spec, scenario.test_spec):
            spec.inspect()
            for who in fixed - learners.keys():
                load_policy(who, spec, agents=spec.inspect().agents)
        _check_names(scenario.id, learners.keys() & _scripted(scenario.spec))
        for opponent in () if config.seats or scenario.seats else config.evaluation.opponents:
            load_policy(opponent, scenario.test_spec, agents=scenario.test_spec.inspect().agents)
        for opponent in config.league.fixed:
            load_policy(opponent, scenario.spec, agents=scenario.spec.inspect().agents)
        _check_random_play(scenario, _at_random(config, scenario, learners))
    return check_memory(config, networks)


def _tiny(policy: PolicyConfig) -> PreTrainedModel:
    """A tiny model without numbers."""
    sizes = tiny_config(
        VOCABULARY, width=policy.width, layers=policy.layers, heads=policy.heads, context=policy.context
    )
    with torch.device("meta"):
        return GPT2LMHeadModel(sizes)


def lists_legal_actions(spec: ScenarioSpec, reset: Mapping[str, Any]) -> bool:
    """Whether the first agents to act are given lists of legal actions, so that there is random play.

    `reset` are the options of the episodes' reset.
    """
    env = spec.make()
    try:
        env.reset(seed=0, options=reset)
        return all(env.legal_actions(agent) is not None for agent in env.acting)
    finally:
        close_env(env)


def imitates(config: TrainConfig, names: Iterable[str]) -> bool:
    """Whether demonstrations are needed: for a warm start, or for the tokenizer of a tiny model.

    Args:
        config: the run's.
        names: of the policies that learn.
    """
    return bool(imitators(config, names)) or not all(start_text(config, name) for name in names)


def _scripted(spec: ScenarioSpec) -> set[str]:
    """The names of the policies that a scenario offers."""
    try:
        return set(registry.policies(spec.id))
    except UnknownScenario:  # it is named by its class and not registered
        return set()


def _check_names(scenario: str, taken: set[str]) -> None:
    if name := min(taken, default=""):
        raise ConfigError(
            f"a policy that learns is called {name!r}, as one that {scenario} offers; write scripted:{name} to seat "
            "that one, or choose another name"
        )


def _check_shares(config: TrainConfig) -> None:
    """Every scenario has episodes in every update."""
    size = group_size(config, make_algorithms(config, policy_names(config)))
    counts = shares(config.training.episodes, [scenario.weight for scenario in config.scenarios], size)
    if 0 in counts:
        raise ConfigError(
            f"of {config.training.episodes} episodes in an update none would be of "
            f"{config.scenarios[counts.index(0)].id}; raise training.episodes, or the scenario's weight"
        )


def _check_imitated(config: TrainConfig) -> None:
    """Those who are imitated hold seats that there are."""
    agents = [agent for scenario in config.scenarios for agent in scenario.spec.inspect().agents]
    if unknown := [seat for seat in config.imitation.seats if seat not in agents]:
        raise ConfigError(
            f"imitation.seats: {config.title} has no agent {unknown[0]!r}; its agents are "
            f"{', '.join(dict.fromkeys(agents))}"
        )


def _check_partners(config: TrainConfig) -> None:
    """The partners of the evaluation can be made, for seats that there are."""
    for seat, partners in config.evaluation.partners.items():
        specs = [s.test_spec for s in config.scenarios if seat in s.spec.inspect().agents]
        if not specs:
            raise ConfigError(f"evaluation.partners: {config.title} has no agent {seat!r}")
        for spec in specs:
            for who in partners:
                load_policy(who, spec, agents=(seat,))


def _check_random_play(scenario: TrainingScenario, at_random: Collection[str]) -> None:
    """Begin an episode, whatever the actions, and look at everyone who acts in it."""
    env = scenario.spec.make()
    seats = tuple(env.possible_agents)
    try:
        env.reset(seed=0, options=scenario.reset)
        for _ in range(STEPS):
            actions = {}
            for agent in env.acting:
                if agent not in seats:
                    raise ConfigError(
                        f"{scenario.id}: {agent!r} joins in the middle of an episode, but only the seats of those with "
                        f"whom it begins can be trained ({', '.join(seats)})"
                    )
                legal = env.legal_actions(agent)
                if legal is None and agent in at_random:
                    raise ConfigError(_no_random_play(scenario.id, agent))
                actions[agent] = legal[0] if legal else ""
            if env.done:
                return
            env.step(actions)
    finally:
        close_env(env)


def _at_random(config: TrainConfig, scenario: TrainingScenario, learners: Iterable[str]) -> set[str]:
    """The seats that random play holds at any time, to be imitated or to play with."""
    seatings = (config.seats, scenario.seats, *(phase.seats for phase in config.phases))
    imitated = scenario.spec.inspect().agents if imitates(config, learners) else ()
    return {seat for seats in seatings for seat, who in seats.items() if who == "random"} | {
        seat for seat in imitated if config.imitation.seats.get(seat, "random") == "random"
    }


def _no_random_play(scenario: str, agent: str) -> str:
    offered = [f"scripted:{name}" for name in sorted(registry.policies(scenario))] if ":" in scenario else []
    fitting = [f", or take the recipe {name}" for name in recipes() if read(name)["scenario"] == scenario]
    return (
        f"{scenario} does not list what is legal for {agent!r}, so there is no random play to imitate or to play with. "
        "Start from a model that can answer already (--policy FOLDER), or name who holds the seats "
        f"(seats.{agent}=...) and whom to imitate (imitation.seats.{agent}=...; it offers "
        f"{', '.join(offered) or 'none'}){''.join(fitting)}"
    )
