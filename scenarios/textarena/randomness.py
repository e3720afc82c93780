"""Randomness for games that draw from Python's global generator.

TextArena's games call `random.shuffle` and friends, and seed the global generator at every reset. So games
that run side by side would disturb each other, and everybody else in the process. Saving and restoring the
generator's state around every call costs some 70 microseconds, and does not help threads. Instead
`isolate()` puts stand-ins for `random`, `numpy` and `print` into TextArena's modules. While an episode's
`Dice` are in use (`with dice:`) the stand-ins of that thread draw from them; otherwise they pass everything
on, so that others who use TextArena in this process see no difference.
"""

from __future__ import annotations

import builtins
import random
import sys
import threading
from types import ModuleType
from typing import Any


class Dice:
    """All the randomness of one episode. Copying an episode copies its dice, in the middle of their sequence.

    Args:
        python: the generator to draw from, seeded with `seed` and not drawn from yet.
        seed: the seed of the episode.
    """

    def __init__(self, python: random.Random, seed: int) -> None:
        self.python = python
        self._seed = seed
        self._numpy: Any = None
        self.fresh = True

    @property
    def numpy(self) -> Any:
        """NumPy's generator of the old kind, made when a game first asks for it."""
        if self._numpy is None:
            import numpy

            self._numpy = numpy.random.RandomState(self._seed % 2**32)
        return self._numpy

    def seed(self, value: Any = None, version: int = 2) -> None:
        """Every game seeds at its reset, mostly as the episode is seeded already; seeding is slow."""
        if not self.fresh or value != self._seed:
            self.fresh = False
            self.python.seed(value, version)

    def __enter__(self) -> None:
        self._outer = _thread.dice
        _thread.dice = self

    def __exit__(self, *error: object) -> None:
        _thread.dice = self._outer


def hosting() -> bool:
    """Whether this thread is inside a hosted game."""
    return _thread.dice is not None


class _Thread(threading.local):
    dice: Dice | None = None


_thread = _Thread()


class _Random:
    """Stands in for the module `random`."""

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
    """Stands in for the module `numpy.random`."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        dice = _thread.dice
        return getattr(self._module if dice is None or not hasattr(dice.numpy, name) else dice.numpy, name)


class _Numpy:
    """Stands in for the module `numpy`; only its `random` is another."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self.random = _NumpyRandom(module.random)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _print(*values: object, **options: Any) -> None:
    """Some games print what went on inside them; a hosted one keeps quiet."""
    if _thread.dice is None:
        builtins.print(*values, **options)  # noqa: T201


def isolate(package: str = "textarena") -> None:
    """Put the stand-ins into all modules of `package` that are loaded. Call it again after loading more."""
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
