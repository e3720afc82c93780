"""A generator per episode for games that use Python's global one.

TextArena's games call functions of `random` and seed the global generator at every reset, so games in one process would
change each other's numbers. Saving and restoring the generator's state around every call does not work with threads.
Instead `isolate()` replaces `random`, `numpy` and `print` in TextArena's modules. Inside `with dice:` the replacements
draw from that episode's `Dice` in this thread; elsewhere they pass calls on unchanged.
"""

from __future__ import annotations

import builtins
import random
import sys
import threading
from types import ModuleType
from typing import Any


class Dice:
    """The generators of one episode. A copy continues the sequence from the same point.

    Args:
        python: the generator, freshly seeded with `seed`.
        seed: the seed of the episode.
    """

    def __init__(self, python: random.Random, seed: int) -> None:
        self.python = python
        self._seed = seed
        self._numpy: Any = None
        self.fresh = True

    @property
    def numpy(self) -> Any:
        """NumPy's legacy generator, made at its first use."""
        if self._numpy is None:
            import numpy

            self._numpy = numpy.random.RandomState(self._seed % 2**32)
        return self._numpy

    def seed(self, value: Any = None, version: int = 2) -> None:
        """Seed again, unless the generator is fresh and has this seed: seeding is slow, and every reset does it."""
        if not self.fresh or value != self._seed:
            self.fresh = False
            self.python.seed(value, version)

    def __enter__(self) -> None:
        self._outer = _thread.dice
        _thread.dice = self

    def __exit__(self, *error: object) -> None:
        _thread.dice = self._outer


def hosting() -> bool:
    """Whether this thread is inside a `with dice:` block."""
    return _thread.dice is not None


class _Thread(threading.local):
    dice: Dice | None = None


_thread = _Thread()


class _Random:
    """Replaces the module `random`."""

    drawn = frozenset(name for name in dir(random.Random) if hasattr(random, name) and not name.startswith("_"))

    def __getattr__(self, name: str) -> Any:
        dice = _thread.dice
        if dice is None or name not in self.drawn:
            return getattr(random, name)
        if name == "seed":
            return dice.seed
        dice.fresh = False
        return getattr(dice.python, name)


class _NumpyRandom:
    """Replaces the module `numpy.random`."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        dice = _thread.dice
        return getattr(self._module if dice is None or not hasattr(dice.numpy, name) else dice.numpy, name)


class _Numpy:
    """Replaces the module `numpy`; only its `random` differs."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self.random = _NumpyRandom(module.random)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _print(*values: object, **options: Any) -> None:
    """Replaces `print`: games of envs print nothing."""
    if _thread.dice is None:
        builtins.print(*values, **options)  # noqa: T201


def isolate(package: str = "textarena") -> None:
    """Put the replacements into all loaded modules of `package`. Call it again after loading more of them."""
    numpy = sys.modules.get("numpy")
    for name, module in list(sys.modules.items()):
        if name in _isolated or name.partition(".")[0] != package:
            continue
        for attribute, value in list(vars(module).items()):
            if value is random:
                setattr(module, attribute, _RANDOM)
            elif value is numpy and numpy is not None:
                setattr(module, attribute, _Numpy(numpy))
        vars(module).setdefault("print", _print)
        _isolated.add(name)


_RANDOM = _Random()
_isolated: set[str] = set()
