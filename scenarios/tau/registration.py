"""Registers a domain's folder as a scenario, with scripted policies and strategies.

    register_domain("my:Library-v0", "examples/library")     # in Python
    export MARL_GEM_TAU_DOMAINS=examples/library              # for the command line: tau:library-v0

The variable names folders, with ':' between them as in PATH. Each is `tau:<the folder's name>-v0` to whatever asks
for a scenario, in this process and in those it starts.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError, RegistryError
from marl_gem.registry import register, register_policy
from marl_gem.scenarios.tau.domain import Domain
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.folder import load_folder
from marl_gem.scenarios.tau.strategies import register_strategies

VARIABLE = "MARL_GEM_TAU_DOMAINS"

_SCRIPTS = {
    "oracle": "Makes each task's own calls and says what must be said; as the user, tells its instruction and stops.",
    "gold-without-words": "Trivial baseline: makes each task's own calls and says nothing of use.",
    "noop": "Trivial baseline: calls nothing, but says every required output.",
    "transfer": "Trivial baseline: hands over to a human at once.",
}


def register_scripts(scenario: str) -> None:
    """Let a scenario, or a family, offer what `scripts.py` plays."""
    for script, what in _SCRIPTS.items():
        register_policy(scenario, script, "marl_gem.scenarios.tau.scripts:policy", description=what, script=script)


def register_domain(id: str, folder: str | Path, **options: Any) -> Domain:
    """Make a scenario of a domain's folder. It is read here and now, and shared by all envs.

    Args:
        id: `family:Name-vN`.
        folder: what `folder.load_folder` reads.
        options: those of `TauEnv` that shall not be as they are there; `make` may override them.

    Returns:
        The domain.

    Raises:
        RecordError: the folder is no sound domain; the message says what is wrong, and where.
        RegistryError: the id is taken, or has no family.
    """
    domain = load_folder(folder)
    what = f"TAU: {domain.name}, a domain from a folder: a customer and an assistant with tools, both agents."
    register(id, functools.partial(TauEnv, domain), description=what, agents=2, turn_order="sequential", **options)
    register_scripts(id)
    register_strategies(id)
    return domain


def register_named() -> None:
    """Register the folders that the variable names. One that is no sound domain is listed with what is wrong.

    Raises:
        RegistryError: two have one name, or one has that of another scenario.
    """
    for folder in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            _register_or_tell(f"tau:{Path(folder).resolve().name}-v0", folder)
        except RegistryError as error:
            raise RegistryError(f"{VARIABLE} names {folder}, and {error} for the folder") from error


def _register_or_tell(id: str, folder: str) -> None:
    try:
        register_domain(id, folder)
    except RecordError as error:
        register(id, TauEnv, description=f"TAU: {folder}", agents=2, unavailable=f"{VARIABLE}: {error}")
