"""ReasoningGym inside a worker: items are generated and answers scored here, and nowhere else.

Nine of its scorers evaluate an answer as Python, five of them through SymPy. They see arithmetic and literals alone:
everything else is refused before it is evaluated.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import importlib
import inspect
import json
import pickle
import random

import numpy
import reasoning_gym
import sympy
from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum

from marl_gem.scenarios.tasks.inside.expressions import expression, literal, original

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def replace_evaluation() -> None:
    """Let the scorers use `literal` and `expression`."""
    sympy.parse_expr = expression
    for dataset, _ in DATASETS.values():
        module = inspect.getmodule(dataset)
        if getattr(module, "parse_expr", None) is original:
            module.parse_expr = expression  # type: ignore[union-attr]
    for name in ("binary_matrix", "spiral_matrix", "string_insertion"):
        importlib.import_module(f"reasoning_gym.algorithmic.{name}").eval = literal  # type: ignore[attr-defined]
    importlib.import_module("reasoning_gym.games.n_queens").eval = literal  # type: ignore[attr-defined]


replace_evaluation()


@functools.lru_cache(256)
def dataset(name: str, level: int | None, config: str, size: int) -> Any:
    """The data set of a name at a level of its curriculum, with values that differ from that, as JSON."""
    values = {"seed": 0, "size": size, **json.loads(config)}
    kind, config_kind = DATASETS[name]
    if level is None:
        made = config_kind(**values)
    else:
        curriculum = create_curriculum(name)
        curriculum.set_global_level(level)
        made = dataclasses.replace(curriculum.generate_configuration({"seed": 0, "size": size}), **values)
    if hasattr(made, "validate"):
        made.validate()
    return kind(config=made)


def item(name: str, level: int | None, config: str, size: int, number: int) -> dict[str, Any]:
    """The item with this number, with what `score` needs as a text."""
    data = dataset(name, level, config, size)
    random.seed(number)  # some draw from the global generators
    numpy.random.seed(number % 2**32)
    entry = data[number]
    packed = base64.b64encode(pickle.dumps(entry)).decode()
    answer = entry["answer"]
    return {"question": entry["question"], "answer": None if answer is None else str(answer), "entry": packed}


def score(name: str, level: int | None, config: str, size: int, packed: str, answer: str) -> float:
    """The score of an answer, from 0 to 1, as ReasoningGym gives it."""
    data = dataset(name, level, config, size)
    entry = _unpacked(packed)
    return float(data.score_answer(answer, entry))


@functools.lru_cache(256)
def _unpacked(packed: str) -> Any:
    return pickle.loads(base64.b64decode(packed))


def levels() -> dict[str, int]:
    """For each name its highest level; -1 where it has no curriculum."""
    curricula = {name: create_curriculum(name) for name in CURRICULA}
    most = {
        name: max((len(attribute.levels) for attribute in curriculum.attributes.values()), default=1)
        for name, curriculum in curricula.items()
    }
    return {name: most.get(name, 0) - 1 for name in DATASETS}


def version() -> str:
    """ReasoningGym's version."""
    return str(reasoning_gym.__version__)


FUNCTIONS = {"item": item, "score": score, "levels": levels, "version": version}
