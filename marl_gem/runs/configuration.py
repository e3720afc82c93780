"""Configurations as plain data: flatten one, compare two, rename the keys of an older format."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names: {"limits": {"turns": 3}} becomes {"limits.turns": 3}."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def differences(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    ignore: Collection[str] = (),
    may_grow: Collection[str] = (),
) -> list[str]:
    """Where two configurations differ, field by field, as sentences: "seed was 1 and would be 2".

    Args:
        before: the configuration of a run.
        after: the configuration that is asked for.
        ignore: dotted names that may differ.
        may_grow: dotted names of integers that may be greater than before.
    """
    was, now = flatten(before), flatten(after)
    found = []
    for name in dict.fromkeys([*was, *now]):
        old, new = was.get(name), now.get(name)
        if name in ignore or old == new:
            continue
        if name in may_grow and isinstance(old, int) and isinstance(new, int) and new > old:
            continue
        found.append(f"{name} was {_text(old)} and would be {_text(new)}")
    return found


def rename_keys(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The same configuration with other keys, for files of an older format.

    Args:
        config: nested mappings; they are not changed.
        names: dotted old names and dotted new ones. An old name that is not there is skipped, as is one whose new
            name is there already.
    """
    renamed = _copy(config)
    for old, new in names.items():
        *parents, key = old.split(".")
        source = _inner(renamed, parents)
        if source is None or key not in source:
            continue
        value = source.pop(key)
        *parents, new_key = new.split(".")
        target = _inner(renamed, parents, make=True)
        if target is None or new_key in target:
            source[key] = value
        else:
            target[new_key] = value
    return renamed


def _copy(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(value) if isinstance(value, Mapping) else value for name, value in config.items()}


def _inner(config: dict[str, Any], path: list[str], make: bool = False) -> dict[str, Any] | None:
    inner: Any = config
    for name in path:
        inner = inner.setdefault(name, {}) if make else inner.get(name)
        if not isinstance(inner, dict):
            return None
    found: dict[str, Any] = inner
    return found


def _text(value: Any) -> str:
    return "not set" if value is None else repr(value)
