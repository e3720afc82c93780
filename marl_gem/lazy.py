"""Packages whose names are imported when they are first used, so that `import marl_gem` and the commands start fast."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package (PEP 562).

        if not TYPE_CHECKING:  # type checkers read the imports of a block `if TYPE_CHECKING`
            __getattr__, __dir__ = lazy_names(__name__, {"TimeLimit": "limits"})

    The package's modules are attributes too: `marl_gem.wrappers.limits` is imported when it is first used.

    Args:
        package: its name.
        modules: the module in the package that has each name. No name is that of such a module.
    """

    def get(name: str) -> Any:
        if name in modules:
            value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
