"""The domains by name. Each is loaded when it is first played, and then shared."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from marl_gem.errors import InvalidOption, RecordError, UnavailableScenario
from marl_gem.scenarios.tau import desk, official
from marl_gem.scenarios.tau.dialogue import UserReward
from marl_gem.scenarios.tau.domain import Domain, load_domain
from marl_gem.scenarios.tau.env import TauEnv

_HERE = Path(__file__).parent
SHIPPED = {"retail-mini": "retail", "airline-mini": "airline"}
"""Domains of our own in the schema, and with the tools, of an official one."""


@lru_cache(None)
def domain(name: str, corrected: bool = False) -> Domain:
    """A domain, loaded once; `corrected` as `domain.CORRECTIONS` tells.

    Raises:
        UnavailableScenario: its data is not on this machine; the message says how to get it.
        RecordError: the data is not what it should be.
    """
    if corrected:
        return replace(domain(name, False), corrected=True)
    if name == "desk":
        return desk.domain()
    kind = SHIPPED.get(name, name)
    tools = importlib.import_module(f"marl_gem.scenarios.tau.{kind}")
    if name in SHIPPED:
        return load_domain(_HERE / "mini" / kind, tools, name=name, official=kind)
    if why := official.missing(name):
        raise UnavailableScenario(f"tau:{name}-v0: {why}")
    try:
        return load_domain(official.home() / name, tools, name=name, official=kind)
    except RecordError as error:
        raise RecordError(f"{error}. To have it afresh, {official.HOW}") from error


def make(
    name: str,
    split: str = "test",
    task: int | None = None,
    max_actions: int = 30,
    calls: Literal["first", "all"] = "first",
    transfer: Literal["official", "strict"] = "official",
    user_reward: str | UserReward = "task",
    corrected: bool = False,
    official: bool = False,
) -> TauEnv:
    """An env of the domain with this name; `TauEnv` explains the options, `domain` what is `corrected`.

    Raises:
        InvalidOption, UnavailableScenario, RecordError: as they do.
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
