"""The values that a policy's text may set: how each is read, written and described, and which policies take it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marl_gem import bounds
from marl_gem.bounds import Range
from marl_gem.errors import ConfigError
from marl_gem.llm.models import ModelSpec, kind_of
from marl_gem.views import view


@dataclass(frozen=True)
class Value:
    """One value.

    Attributes:
        read: makes the value of a text; ValueError refuses it.
        meaning: what the value is, for messages.
        kinds: the kinds of policy that take it.
        shown: whether a message may repeat a text that was refused.
    """

    read: Callable[[str], Any]
    meaning: str
    kinds: tuple[str, ...]
    shown: bool = True


def read_values(who: str, kind: str, assignments: Sequence[str]) -> dict[str, Any]:
    """The values that a text sets.

    Args:
        who: what stands before them, for messages.
        kind: of the policy.
        assignments: `NAME=VALUE`.

    Raises:
        ConfigError: a value is unknown, is not for this kind, is set twice or cannot be read. What was given as a key
            is not repeated.
    """
    taken = [name for name, value in VALUES.items() if kind in value.kinds]
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, _, text = (part.strip() for part in assignment.partition("="))
        if name not in taken:
            near = difflib.get_close_matches(name, taken, 1)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{who} takes no {name!r}; it takes {', '.join(taken) or 'no values'}{hint}")
        if name in values:
            raise ConfigError(f"{who}: {name} is set twice")
        value = VALUES[name]
        try:
            values[name] = value.read(text)
        except ValueError:
            shown = f", not {text!r}" if value.shown else ""
            raise ConfigError(f"{who}: {name} is {value.meaning}{shown}") from None
    return values


def write_values(values: Mapping[str, Any]) -> list[str]:
    """`NAME=VALUE` for each value that is not None, in the order of `VALUES`."""
    return [f"{name}={_write(values[name])}" for name in VALUES if values.get(name) is not None]


def _write(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_write, value))
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _number(within: Range) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not text.isascii() or (within.integer and not text.isdigit()):
            raise ValueError
        value = int(text) if within.integer else float(text) + 0.0  # -0 becomes 0
        if value not in within:
            raise ValueError
        return value

    return read


def _price(text: str) -> tuple[float, float]:
    read, written = map(_number(bounds.DOLLARS), text.split("/"))
    return read, written


def _matching(pattern: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError
        return text

    return read


def _view_name(text: str) -> str:
    view(text)
    return text


def _model(text: str) -> ModelSpec:
    if kind_of(text) is None:
        raise ValueError
    return ModelSpec.parse(text)


def _numeric(within: Range, kinds: tuple[str, ...], unit: str = "") -> Value:
    return Value(_number(within), str(within).replace("number", f"number{unit}", 1), kinds)


_SERVED = ("http",)
_REMOTE = ("http", "litellm")
_MODELS = ("http", "litellm", "hf")
_TRAINED = (*_MODELS, "run")

VALUES = {
    "temperature": _numeric(bounds.TEMPERATURE, _TRAINED),
    "top_p": _numeric(bounds.PROBABILITY, _TRAINED),
    "max_tokens": _numeric(bounds.ANSWER_TOKENS, _TRAINED),
    "strategy": Value(_matching(".+"), "a strategy's name", _TRAINED),
    "judge": Value(_model, "a model, as in tiny@http://127.0.0.1:8000/v1", _TRAINED),
    "view": Value(_view_name, "a view's name", _MODELS),
    "reasoning": Value(_matching("keep|drop"), "keep or drop", _MODELS),
    "price": Value(_price, "two numbers from 0 up, as in 0.15/0.6", _REMOTE),
    "api_key_env": Value(
        _matching("[A-Z][A-Z0-9_]*"), "the name of an environment variable, as in OPENAI_API_KEY", _REMOTE, shown=False
    ),
    "connect_timeout": _numeric(bounds.TIMEOUT, _SERVED, " of seconds"),
    "read_timeout": _numeric(bounds.TIMEOUT, _SERVED, " of seconds"),
    "timeout": _numeric(bounds.TIMEOUT, _REMOTE, " of seconds"),
    "wait": _numeric(bounds.SECONDS, _REMOTE, " of seconds"),
    "adapter": Value(_matching(".+"), "the name of an adapter", _SERVED),
    "logprobs": Value(_matching("raw|processed|off"), "raw, processed or off", _SERVED),
}

WAITS = ("connect_timeout", "read_timeout", "timeout", "wait")
"""The values that say how long a server is waited for; none changes an answer."""
