"""From a PolicySpec to a policy."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from marl_gem import registry
from marl_gem.errors import CheckpointError, ConfigError, MissingPackage
from marl_gem.llm import Sampling
from marl_gem.llm.models import Connection, Models, ModelSpec
from marl_gem.overrides import write_value
from marl_gem.policies import HumanPolicy, LLMPolicy, Policy, PolicyPerSeat, RandomPolicy
from marl_gem.policies.replay import ReplayPolicy
from marl_gem.specs.policy import PolicySpec
from marl_gem.specs.scenario import ScenarioSpec
from marl_gem.specs.values import VALUES, WAITS
from marl_gem.views import chat, view

MAX_TOKENS = 1024
"""The longest answer of a model for which no other length is set, in tokens."""

CHECKPOINTS = "marl_gem.trainers.checkpoint"
"""The module that reads checkpoints, by name: trainers import this package, and need torch."""


def load_policy(
    policy: PolicySpec | str,
    scenario: ScenarioSpec | str,
    *,
    agents: Sequence[str] = (),
    models: Models | None = None,
    human: Callable[[], HumanPolicy] = HumanPolicy,
) -> Policy:
    """The policy behind a spec.

        policy = load_policy("tiny@http://127.0.0.1:8000/v1,temperature=0", "game:KuhnPoker-v0")

    Args:
        policy: a spec, or its text.
        scenario: what is to be played. Scripted policies, runs and strategies depend on it.
        agents: the agents that the policy is to be; a strategy needs to know.
        models: makes the models. Share it between calls, so that equal models are one, with one cache.
        human: makes the policy of a person.

    Raises:
        AgentError: there is no such policy.
        RegistryError: the scenario has no scripted policy of this name, or no such strategy for the agent.
        ConfigError: a value makes no sense here, or the model cannot be used as asked for.
        CheckpointError: the checkpoint is missing, damaged, or of another scenario.
        RecordError: the recorded run cannot be read.
        LLMError, MissingPackage: the model cannot be made; the message says why.
    """
    spec = PolicySpec.parse(policy) if isinstance(policy, str) else policy
    scenario, models = ScenarioSpec.parse(scenario), models or Models()
    if spec.kind == "random":
        return RandomPolicy()
    if spec.kind == "human":
        return human()
    if spec.kind == "scripted":
        return registry.make_policy(scenario.id, spec.name, scenario.options)
    if spec.kind == "replay":
        return models.once(("replay", spec.name), lambda: ReplayPolicy(spec.name))
    if spec.kind == "run":
        key = ("run", spec.name, spec.checkpoint, spec.learner, scenario.id)
        trained = models.once(key, lambda: _load_trained(spec, scenario))
        base = _with_sampling(trained, spec)
    else:
        base = _model_policy(spec, models)
    if spec.strategy is None:
        return base
    judge = _model_policy(_judge_spec(spec, spec.judge), models) if spec.judge else None
    return _with_strategy(spec.strategy, base, judge, scenario, agents)


def load_policies(
    seats: Mapping[str, PolicySpec],
    scenario: ScenarioSpec | str,
    *,
    models: Models | None = None,
    human: Callable[[], HumanPolicy] = HumanPolicy,
) -> dict[str, Policy]:
    """The policies of all agents; agents with equal specs share one policy. Raises what `load_policy` raises."""
    models = models or Models()
    agents: dict[PolicySpec, list[str]] = {}
    for agent, spec in seats.items():
        agents.setdefault(spec, []).append(agent)
    policies = {
        spec: load_policy(spec, scenario, agents=names, models=models, human=human) for spec, names in agents.items()
    }
    return {agent: policies[spec] for agent, spec in seats.items()}


def training_options(policies: Iterable[PolicySpec], scenario: str, named: Collection[str] = ()) -> dict[str, Any]:
    """The options under which the runs among these policies were trained, where they were trained on this scenario.

    A trained policy sees what it was trained on if the scenario is made with these. A checkpoint may come from somebody
    else: of its options only those are taken that can name nothing outside of the scenario, such as a server or a file
    (see `registry.is_plain_option`).

    Args:
        policies: the runs among them count.
        scenario: the id of what is to be played.
        named: the options that the caller sets; the runs' values of these are not looked at.

    Raises:
        CheckpointError: a checkpoint is missing or damaged, or has another option that is not in `named`.
        MissingPackage: there is a run, and torch is not installed.
    """
    options: dict[str, Any] = {}
    for spec in policies:
        trained = _options_of_run(spec, scenario) if spec.kind == "run" else {}
        for name, value in trained.items():
            if name in named:
                continue
            if not registry.is_plain_option(scenario, name, value):
                text = write_value(value)
                raise CheckpointError(
                    f"{spec.who} was trained with {name}={text if len(text) <= 200 else text[:200] + ' ...'}; it may "
                    "name a server, a model, a file or a command, so it is not taken from a checkpoint. Set the option "
                    f"yourself, to this or to another value, as in -o {name}=..."
                )
            options[name] = value
    return options


def _checkpoints() -> ModuleType:
    try:
        return importlib.import_module(CHECKPOINTS)
    except ImportError as error:
        raise MissingPackage(error.name or "torch", "train", "the policy of a training run") from error


def _load_trained(spec: PolicySpec, scenario: ScenarioSpec) -> Policy:
    checkpoints = _checkpoints()
    policy: Policy = checkpoints.load_policy(checkpoints.find(Path(spec.name), spec.checkpoint), scenario, spec.learner)
    return policy


def _options_of_run(spec: PolicySpec, scenario: str) -> dict[str, Any]:
    checkpoints = _checkpoints()
    options: dict[str, Any] = checkpoints.scenario_options(checkpoints.find(Path(spec.name), spec.checkpoint), scenario)
    return options


def _judge_spec(spec: PolicySpec, judge: ModelSpec) -> PolicySpec:
    """The judge of a policy. It is waited for as the policy's model is, as far as its back end can."""
    waits = {name: getattr(spec, name) for name in WAITS if judge.kind in VALUES[name].kinds}
    return PolicySpec(judge.kind, judge.name, judge.url, **waits)


def _model_policy(spec: PolicySpec, models: Models) -> LLMPolicy:
    given = {name: getattr(spec, name) for name in Connection.__struct_fields__}
    connection = Connection(**{name: value for name, value in given.items() if value is not None})
    return LLMPolicy(
        models.get(spec.model, connection),
        view(spec.view) if spec.view else chat,
        _sampling(Sampling(MAX_TOKENS), spec),
        keep_reasoning=spec.reasoning == "keep",
    )


def _with_sampling(trained: Policy, spec: PolicySpec) -> Policy:
    """The same models with the sampling that the spec sets."""
    if isinstance(trained, PolicyPerSeat):
        policies = {agent: _with_sampling(policy, spec) for agent, policy in trained.policies.items()}
        return PolicyPerSeat(trained.name, policies)
    if not isinstance(trained, LLMPolicy):
        return trained
    changed = copy.copy(trained)
    changed.sampling = _sampling(trained.sampling, spec)
    return changed


def _sampling(default: Sampling, spec: PolicySpec) -> Sampling:
    given = {name: getattr(spec, name) for name in ("temperature", "top_p", "max_tokens")}
    return msgspec.structs.replace(default, **{name: value for name, value in given.items() if value is not None})


def _with_strategy(
    name: str, base: Policy, judge: Policy | None, scenario: ScenarioSpec, agents: Sequence[str]
) -> Policy:
    """Apply a strategy for each agent apart: the same name may mean something else there."""
    if not agents:
        raise ConfigError(f"strategy={name} is one of an agent, and none is named; call load_policy(..., agents=[...])")
    policies = {}
    for agent in agents:
        policy = base.policies.get(agent, base) if isinstance(base, PolicyPerSeat) else base
        policies[agent] = registry.make_strategy(
            scenario.id, agent, name, policy, judge=judge, options=scenario.options
        )
    return policies[agents[0]] if len(policies) == 1 else PolicyPerSeat(f"{base.name} ({name})", policies)
