"""Registers a domain's folder as a scenario, with scripted policies and strategies.

    register_domain("my:Library-v0", "examples/library")     # in Python
    export MARL_GEM_TAU_DOMAINS=examples/library              # for the command line: tau:library-v0

The variable holds folders separated by ':' as in PATH. Each is registered as `tau:<the folder's name>-v0`, in this
process and in those it starts.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marl_gem.errors import RecordError, RegistryError
from marl_gem.registry import Need, register, register_policy, register_strategy

if TYPE_CHECKING:  # to register takes none of these, which take long to import
    from marl_gem.scenarios.tau.domain import Domain

VARIABLE = "MARL_GEM_TAU_DOMAINS"

_SCRIPTS = {
    "oracle": "Makes the task's reference calls and says its outputs; as the user, says its instruction and stops.",
    "gold-without-words": "Trivial baseline: makes the task's reference calls and says no outputs.",
    "noop": "Trivial baseline: makes no calls, says all outputs.",
    "transfer": "Trivial baseline: transfers to a human at once.",
}

_HERE = "marl_gem.scenarios.tau"
_STRATEGIES: tuple[tuple[str, str, str, tuple[Need, ...], str], ...] = (
    ("user", "react", "users:react", (), "Writes a thought before each message; it is not sent."),
    ("user", "verify", "users:verify", ("judge",), "A judge checks each message; a rejected one is sampled again."),
    (
        "user",
        "reflect",
        "users:reflect",
        ("judge",),
        "A judge checks each message; a rejected one is rewritten with the judge's reason.",
    ),
    ("assistant", "act", "assistants:act", (), "Every answer is one action, written as JSON."),
    ("assistant", "react", "assistants:react", (), "As act, after a thought that is not sent."),
    ("user", "official", "official_seats:user", ("env",), "As for published scores; requires official=true."),
    (
        "assistant",
        "official",
        "official_seats:assistant",
        ("env",),
        "As for published scores; requires official=true.",
    ),
    ("assistant", "few-shot", "strategies:few_shot", ("env",), "Five solved dialogues are in its instructions."),
)


def register_scripts(scenario: str) -> None:
    """Register the policies of `scripts.py` for a scenario or a family."""
    for script, what in _SCRIPTS.items():
        register_policy(scenario, script, "marl_gem.scenarios.tau.scripts:policy", description=what, script=script)


def register_strategies(scenario: str) -> None:
    """Register all strategies of both seats for a scenario or a family, as in `user=MODEL@URL,strategy=react`.

    Without a strategy, a user's answer is its message and an assistant calls tools in its back end's format.
    """
    for agent, name, where, needs, what in _STRATEGIES:
        register_strategy(scenario, agent, name, f"{_HERE}.{where}", description=what, needs=needs)


def register_domain(id: str, folder: str | Path, **options: Any) -> Domain:
    """Register a domain's folder as a scenario. The folder is read once, and all envs share the domain.

    Args:
        id: `family:Name-vN`.
        folder: a folder in the layout that `folder.load_folder` reads.
        options: other defaults for options of `TauEnv`; `make` may override them.

    Returns:
        The domain.

    Raises:
        RecordError: the folder is not a valid domain; the message gives the file and the error.
        RegistryError: the id is taken, or has no family.
    """
    from marl_gem.scenarios.tau.env import TauEnv
    from marl_gem.scenarios.tau.folder import load_folder

    domain = load_folder(folder)
    what = f"TAU: {domain.name}, a domain from a folder: a customer and an assistant with tools, both agents."
    register(id, functools.partial(TauEnv, domain), description=what, agents=2, turn_order="sequential", **options)
    register_scripts(id)
    register_strategies(id)
    return domain


def register_named() -> None:
    """Register the folders in the variable. A folder that is not a valid domain is listed with the error.

    Raises:
        RegistryError: two folders have the same name, or a folder has the name of another scenario.
    """
    for folder in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            _register_or_list(f"tau:{Path(folder).resolve().name}-v0", folder)
        except RegistryError as error:
            raise RegistryError(f"{VARIABLE} names {folder}, and {error} for the folder") from error


def _register_or_list(id: str, folder: str) -> None:
    try:
        register_domain(id, folder)
    except RecordError as error:
        register(
            id,
            "marl_gem.scenarios.tau.env:TauEnv",
            description=f"TAU: {folder}",
            agents=2,
            unavailable=f"{VARIABLE}: {error}",
        )
