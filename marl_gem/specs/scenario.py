"""What is played: a scenario with its options and wrappers, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

import msgspec

from marl_gem import registry
from marl_gem.env import MultiAgentEnv
from marl_gem.errors import ConfigError, RegistryError, ScenarioFault
from marl_gem.faults import close_env, foreign_code, shown
from marl_gem.registry import WrapperSpec
from marl_gem.types import Metadata


class ScenarioInfo(msgspec.Struct, frozen=True):
    """What one look at an env gives. See `MultiAgentEnv` for what the fields mean.

    `scenario` is the env's id; `zero_sum` whether the metadata declare it; `trivial_baselines` holds for each trivial
    way of playing the share of tries that succeed, from 0 to 1, for each of the `tasks`; `grades` the tasks' grades.
    """

    scenario: str
    agents: tuple[str, ...]
    joins: bool
    tasks: int | None
    zero_sum: bool
    trivial_baselines: Mapping[str, Sequence[float]]
    metadata: Metadata
    grades: tuple[str, ...] = ()


class ScenarioSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A scenario, the options that it is made with, and its wrappers, the innermost first.

        spec = ScenarioSpec.parse("game:KuhnPoker-v0", wrappers=["time_limit=20"])
        env = spec.make()

    `factory` makes the env where Python code gave a callable instead of an id; such a spec cannot be written down.
    """

    id: str
    options: dict[str, Any] = {}
    wrappers: tuple[WrapperSpec, ...] = ()
    factory: Callable[[], MultiAgentEnv] | None = None

    @classmethod
    def parse(
        cls,
        source: ScenarioSource,
        options: Mapping[str, Any] | None = None,
        wrappers: Sequence[str | Mapping[str, Any] | WrapperSpec] = (),
        tools: Sequence[str] = (),
    ) -> Self:
        """A spec from whatever names a scenario.

        Args:
            source: an id, `module:Class` or `path/to/file.py:Class`; a table with `id`, `options`, `wrappers` and
                `tools`, as a TOML file or config.json holds it; a callable that makes an env; or a spec.
            options: what the scenario is made with. Added to those of a table or a spec.
            wrappers: text such as `time_limit=20`, tables or specs. They go around those of a table or a spec.
            tools: text such as `search:corpus=notes.jsonl`; all agents get them. They become the wrapper `tools`, which
                stands around the wrappers that change actions, and within the others.

        Raises:
            UnknownScenario, RegistryError: a wrapper is unknown, or the scenario that it is for.
            InvalidOption: a wrapper does not take such a parameter.
            ConfigError: the table holds something else, or options are given for a callable.
        """
        if isinstance(source, ScenarioSpec):
            base = cls(source.id, source.options, source.wrappers, source.factory)
        elif isinstance(source, str):
            base = cls(source)
        elif isinstance(source, Mapping):
            base = cls._from_table(source)
        elif callable(source):
            base = cls(getattr(source, "__qualname__", type(source).__qualname__), factory=source)
        else:
            raise ConfigError(f"a scenario is an id, a table or a callable that makes an env, not {source!r}")
        if options and base.factory is not None:
            raise ConfigError("options are for scenarios that have an id; let the callable pass its own to the env")
        if wrappers and base.factory is None:
            registry.find(base.id)  # its plug-in may register wrappers
        added = tuple(WrapperSpec.parse(wrapper) for wrapper in wrappers)
        around = (*base.wrappers, *added)
        if tools:
            around = _with_tools(around, tools)
        return cls(base.id, {**base.options, **(options or {})}, around, base.factory)

    @classmethod
    def _from_table(cls, table: Mapping[str, Any]) -> Self:
        wrappers = table.get("wrappers", ())
        if isinstance(wrappers, (str, Mapping)) or not isinstance(wrappers, Sequence):
            raise ConfigError(f"scenario.wrappers is a list, as in ['time_limit=20'], not {wrappers!r}")
        tools = table.get("tools", ())
        if isinstance(tools, str) or not isinstance(tools, Sequence) or not all(isinstance(t, str) for t in tools):
            raise ConfigError(f"scenario.tools is a list, as in ['calculator'], not {shown(tools)}")
        fields = {name: value for name, value in table.items() if name not in ("wrappers", "tools")}
        try:
            spec = msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"a scenario is an id, or a table with id, options and wrappers: {error}") from error
        if spec.factory is not None:
            raise ConfigError("a table names a scenario by its id")
        return cls.parse(spec, wrappers=wrappers, tools=tools)

    @property
    def nameable(self) -> bool:
        """Whether it can be written down: as plain data, or on a command line."""
        return self.factory is None

    def make(self) -> MultiAgentEnv:
        """A fresh env within its wrappers.

        Raises:
            UnknownScenario, UnavailableScenario, InvalidOption, MissingPackage: each says what to do.
            RegistryError: a wrapper is unknown, or what was made is no env.
        """
        if self.factory is None:
            return registry.make(self.id, wrappers=self.wrappers, **self.options)
        with foreign_code(f"{self.id} cannot be made", ScenarioFault):
            env = self.factory()
        if not issubclass(type(env), MultiAgentEnv):
            raise RegistryError(f"{self.id} makes {shown(env)}, not a MultiAgentEnv")
        for wrapper in self.wrappers:
            env = wrapper.wrap(env)
        return env

    def inspect(self) -> ScenarioInfo:
        """What an env of it tells before it is played; one is made, and closed.

        Raises:
            RegistryError, MissingPackage: it cannot be made.
            ScenarioFault: an attribute raises or is not what the contract says, or its trivial_baselines are not one
                share for each task.
        """
        env = self.make()
        try:
            with foreign_code(f"{self.id} cannot be inspected", ScenarioFault):
                return _info(env)
        finally:
            close_env(env)

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """The same with other values of some options.

        Raises:
            ConfigError: there are some, and the spec holds a callable.
        """
        return type(self).parse(self, options)

    def to_data(self) -> dict[str, Any]:
        """Plain data from which `parse` gives the spec back; wrappers are texts where these say all."""
        data: dict[str, Any] = {"id": self.id}
        if self.options:
            data["options"] = dict(self.options)
        if self.wrappers:
            data["wrappers"] = [wrapper.to_data() for wrapper in self.wrappers]
        return data


def _with_tools(wrappers: Sequence[WrapperSpec], tools: Sequence[str]) -> tuple[WrapperSpec, ...]:
    """These wrappers and one that gives tools, at the position that makes sense."""
    position = max((index for index, wrapper in enumerate(wrappers, 1) if "actions" in wrapper.changes), default=0)
    return (
        *wrappers[:position],
        WrapperSpec.parse({"name": "tools", "values": {"tools": list(tools)}}),
        *wrappers[position:],
    )


ScenarioSource: TypeAlias = str | Mapping[str, Any] | Callable[[], MultiAgentEnv] | ScenarioSpec
"""Whatever names a scenario; see `ScenarioSpec.parse`."""


def _info(env: MultiAgentEnv) -> ScenarioInfo:
    tasks, metadata = env.tasks, env.metadata
    if not isinstance(metadata, Metadata):
        raise ScenarioFault(f"{env.scenario}: metadata is {shown(metadata)}, not a Metadata")
    if not all(isinstance(agent, str) for agent in env.possible_agents):
        raise ScenarioFault(f"{env.scenario}: possible_agents are names, each once, not {shown(env.possible_agents)}")
    tasks = tasks if isinstance(tasks, int) else None
    return ScenarioInfo(
        scenario=str.__str__(env.scenario),
        agents=tuple(map(str.__str__, env.possible_agents)),
        joins=metadata.joins,
        tasks=tasks,
        zero_sum=metadata.zero_sum is True,
        trivial_baselines=_trivial_baselines(env, tasks),
        metadata=metadata,
        grades=_grades(env, tasks),
    )


def _grades(env: MultiAgentEnv, tasks: int | None) -> tuple[str, ...]:
    """The grades of a scenario's tasks, if they are what the contract says."""
    grades = env.grades
    texts = isinstance(grades, Sequence) and all(isinstance(grade, str) for grade in grades)
    if not texts or isinstance(grades, str) or (grades and len(grades) != tasks):
        raise ScenarioFault(
            f"{env.scenario}: grades must hold a text for each of its tasks, of which there are {tasks or 'none'}; "
            f"not {shown(grades)}"
        )
    return tuple(map(str.__str__, grades))


def _trivial_baselines(env: MultiAgentEnv, tasks: int | None) -> Mapping[str, Sequence[float]]:
    """A scenario's trivial baselines, if they are what the contract says."""
    baselines = env.trivial_baselines
    for name, shares in baselines.items():
        if not isinstance(shares, Sequence) or len(shares) != tasks or not all(0 <= share <= 1 for share in shares):
            raise ScenarioFault(
                f"{env.scenario}: trivial_baselines[{name!r}] must hold a share from 0 to 1 for each of its tasks, "
                f"of which there are {tasks or 'none'}; not {shares!s:.80}"
            )
    return baselines
