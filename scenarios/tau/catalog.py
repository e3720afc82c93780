"""The domains by name. Each is loaded once, when it is first played, and then shared."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from marl_gem.errors import InvalidOption, RecordError, UnavailableScenario
from marl_gem.scenarios.tau import data_folder, desk
from marl_gem.scenarios.tau.dialogue import UserReward
from marl_gem.scenarios.tau.domain import Domain, load_domain
from marl_gem.scenarios.tau.env import TauEnv

_HERE = Path(__file__).parent
SHIPPED = {"retail-mini": "retail", "airline-mini": "airline"}
"""Domains that ship with marl_gem, and the official domain whose schema and tools each one has."""


@lru_cache(None)
def domain(name: str, corrected: bool = False) -> Domain:
    """A domain, loaded once.

    Args:
        name: "retail", "airline", "retail-mini", "airline-mini" or "desk".
        corrected: whether the tools do what `domain.CORRECTIONS` lists.

    Raises:
        UnavailableScenario: its data is not on this machine; the message says how to get it.
        RecordError: a file of the data has the wrong content.
        InvalidOption: there is no such domain.
    """
    if corrected:
        return replace(domain(name, False), corrected=True)
    if name == "desk":
        return desk.domain()
    kind = SHIPPED.get(name, name)
    if kind not in SHIPPED.values():
        raise InvalidOption(
            f"there is no domain {name!r}; there are {', '.join([*SHIPPED, *SHIPPED.values(), 'desk'])}"
        )
    tools = importlib.import_module(f"marl_gem.scenarios.tau.{kind}")
    if name in SHIPPED:
        return load_domain(_HERE / "mini" / kind, tools, name=name, official=kind)
    if why := data_folder.missing(name):
        raise UnavailableScenario(f"tau:{name}-v0: {why}")
    try:
        return load_domain(data_folder.home() / name, tools, name=name, official=kind)
    except RecordError as error:
        raise RecordError(f"{error}. To have it afresh, {data_folder.HOW}") from error


def make(
    name: str,
    split: Literal["test", "train", "dev"] | str = "test",
    task: int | None = None,
    max_actions: int = 30,
    calls: Literal["first", "all"] = "first",
    transfer: Literal["official", "strict"] = "official",
    user_reward: Literal["task", "fidelity"] | str | UserReward = "task",
    corrected: bool = False,
    official: bool = False,
) -> TauEnv:
    """An env of a domain.

    Args:
        name: the domain's name, see `domain`.
        split: the split that tasks are drawn from: "test", "train" or another one that the domain has.
        task: the number of the task of every episode, from 0; None: each episode draws its own.
        max_actions: the most calls and messages of the assistant, from 1; then the episode is truncated.
        calls: of several calls in one response, "first" carries out the first and "all" carries out all.
        transfer: "official" scores a transfer to a human as any other end; "strict" gives 0 if the task needs none.
        user_reward: the user's reward: "task", "fidelity", "judge:MODEL" or a function of a `Dialogue`.
        corrected: whether the tools do what `domain.CORRECTIONS` lists instead of the official behaviour.
        official: the rules of published scores, see `TauEnv`.

    Raises:
        InvalidOption: a value is not allowed.
        UnavailableScenario: the domain's data is not on this machine; the message says how to get it.
        RecordError: a file of the data has the wrong content.
        ConfigError, LLMError, MissingPackage: the judge's model cannot be made.
    """
    if not isinstance(corrected, bool):
        raise InvalidOption(f"corrected is true or false, not {corrected!r}")
    options: dict[str, Any] = {
        "split": split,
        "task": task,
        "max_actions": max_actions,
        "calls": calls,
        "transfer": transfer,
        "user_reward": user_reward,
        "official": official,
    }
    return TauEnv(domain(name, corrected), **options)
