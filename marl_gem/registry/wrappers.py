"""Wrappers by name, as a text, a configuration or a command line gives them.

    time_limit=20                  the value of the wrapper's first parameter
    reward_clip,low=0,high=1       parameters by name
    reward_clip=0,high=1           both

A value is read as TOML (a number, true, a list), else taken as text. So a wrapper that text can name takes plain data.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import msgspec

from marl_gem.errors import ConfigError, InvalidOption, RegistryError, ScenarioFault
from marl_gem.faults import foreign_code
from marl_gem.overrides import split_call, write_value
from marl_gem.registry.tables import choose, new_table, resolve

if TYPE_CHECKING:  # to list scenarios takes no envs, which take long to import
    from marl_gem.env import MultiAgentEnv


@dataclass(frozen=True)
class RegisteredWrapper:
    """A wrapper that can be named. `entry_point` takes an env and plain data, and returns the wrapped env."""

    name: str
    entry_point: str | Callable[..., MultiAgentEnv]
    description: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what it takes besides the env."""
        return tuple(inspect.signature(resolve(self.entry_point)).parameters)[1:]


_wrappers: dict[str, RegisteredWrapper] = new_table()


def register_wrapper(name: str, entry_point: str | Callable[..., MultiAgentEnv], *, description: str = "") -> None:
    """Register a wrapper, so that `marl_gem.make`, `--wrap` and a training file can name it.

        register_wrapper("time_limit", "marl_gem.wrappers.limits:TimeLimit", description="Ends after max_steps steps.")

    Args:
        name: letters, digits and underscores.
        entry_point: a callable that takes an env, and plain data by name, and returns the wrapped env; or where to
            find it.
        description: one line for `marl-gem list --wrappers`.

    Raises:
        RegistryError: the name is taken, or holds other characters.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise RegistryError(f"{name!r} is no name for a wrapper; use letters, digits and underscores")
    if name in _wrappers:
        raise RegistryError(f"a wrapper {name!r} is registered already; choose another name")
    _wrappers[name] = RegisteredWrapper(name, entry_point, description)


def wrappers() -> dict[str, RegisteredWrapper]:
    """All registered wrappers by name, sorted."""
    return dict(sorted(_wrappers.items()))


class WrapperSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wrapper by its registered name, with the values of its parameters: plain data."""

    name: str
    values: dict[str, Any] = {}

    @classmethod
    def parse(cls, source: str | Mapping[str, Any] | WrapperSpec) -> Self:
        """A spec from text such as `time_limit=20`, or from a table with `name` and `values`.

        Raises:
            RegistryError: there is no such wrapper; the message suggests the nearest.
            InvalidOption: a parameter is unknown, missing or given twice; the message names all parameters.
            ConfigError: the table holds something else.
        """
        if isinstance(source, str):
            spec = cls(*_read(source))
        elif isinstance(source, Mapping):
            try:
                spec = msgspec.convert(source, cls)
            except msgspec.ValidationError as error:
                raise ConfigError(f"a wrapper is text or a table with name and values: {error}") from error
        else:
            spec = cls(source.name, source.values)
        _check(spec)
        return spec

    @property
    def changes(self) -> frozenset[str]:
        """What the wrapper says it changes, see `Wrapper.changes`; empty if it does not say.

        Raises:
            RegistryError: there is no such wrapper.
        """
        return frozenset(getattr(resolve(_get(self.name).entry_point), "changes", ()))

    def wrap(self, env: MultiAgentEnv) -> MultiAgentEnv:
        """The env within this wrapper.

        Raises:
            RegistryError: there is no such wrapper.
            InvalidOption: the wrapper refuses a value, or cannot stand around the wrappers of `env`.
        """
        registered = _get(self.name)
        try:
            with foreign_code(f"the wrapper {self} cannot be made", ScenarioFault, but=(TypeError, ValueError)):
                wrapped: MultiAgentEnv = resolve(registered.entry_point)(env, **self.values)
            return wrapped
        except (ConfigError, TypeError, ValueError) as error:
            raise InvalidOption(f"the wrapper {self}: {error}. {_takes(registered)}") from error

    def to_data(self) -> str | dict[str, Any]:
        """Text if that gives the spec back, else a table."""
        text = str(self)
        return text if _read(text) == (self.name, self.values) else msgspec.to_builtins(self)

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{name}={write_value(value)}" for name, value in self.values.items())])


def _read(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the values in a text."""
    name, assignments = split_call(text)
    values: dict[str, Any] = {}
    for given, value in assignments:
        parameter = given or _first_parameter(name, text)
        if parameter in values:
            raise InvalidOption(f"{text!r} sets {parameter} twice. {_takes(_get(name))}")
        values[parameter] = value
    return name, values


def _first_parameter(name: str, text: str) -> str:
    parameters = _get(name).parameters
    if not parameters:
        raise InvalidOption(f"{text!r}: {_takes(_get(name))}")
    return parameters[0]


def _check(spec: WrapperSpec) -> None:
    registered = _get(spec.name)
    try:
        inspect.signature(resolve(registered.entry_point)).bind(None, **spec.values)
    except TypeError as error:
        raise InvalidOption(f"the wrapper {spec}: {error}. {_takes(registered)}") from None


def _get(name: str) -> RegisteredWrapper:
    return choose(name, _wrappers, f"there is no wrapper {name!r}; there are")


def _takes(registered: RegisteredWrapper) -> str:
    parameters = registered.parameters
    return f"{registered.name} takes {', '.join(parameters) or 'no values'}"


_SHIPPED = {
    "time_limit": ("limits:TimeLimit", "Truncates whoever is left after max_steps steps."),
    "parse_action": (
        "parse:ParseAction",
        "Finds the action in a longer answer: boxed, tagged:TAG, matching:REGEX.",
    ),
    "show_history": ("history:ShowHistory", "Shows agents a view of their history in one observation."),
    "step_penalty": ("rewards:StepPenalty", "Takes penalty off an agent's reward for each of its actions."),
    "reward_scale": ("rewards:RewardScale", "Multiplies rewards by factor, and pays offset once an episode."),
    "reward_clip": ("rewards:RewardClip", "Keeps rewards between low and high."),
    "episode_statistics": (
        "statistics:EpisodeStatistics",
        "Puts each agent's return, steps and turns into its last info.",
    ),
    "reward": ("reward_env:RewardEnv", "Pays a reward that is a function of turns or episodes, as in FILE.py:NAME."),
    "tools": ("tool_env:ToolEnv", "Gives agents tools, by their names; also written --tool NAME."),
    "record_episodes": ("record:RecordEpisodes", "Appends each episode to a file, or to episodes.jsonl in a folder."),
}
for _name, (_where, _description) in _SHIPPED.items():
    register_wrapper(_name, f"marl_gem.wrappers.{_where}", description=_description)
