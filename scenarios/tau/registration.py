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
from typing import Any

from marl_gem.errors import RecordError, RegistryError
from marl_gem.registry import register, register_policy
from marl_gem.scenarios.tau.domain import Domain
from marl_gem.scenarios.tau.env import TauEnv
from marl_gem.scenarios.tau.folder import load_folder
from marl_gem.scenarios.tau.strategies import register_strategies

VARIABLE = "MARL_GEM_TAU_DOMAINS"

_SCRIPTS = {
    "oracle": "Makes the task's reference calls and says its outputs; as the user, says its instruction and stops.",
    "gold-without-words": "Trivial baseline: makes the task's reference calls and says no outputs.",
    "noop": "Trivial baseline: makes no calls, says all outputs.",
    "transfer": "Trivial baseline: transfers to a human at once.",
}


def register_scripts(scenario: str) -> None:
    """Register the policies of `scripts.py` for a scenario or a family."""
    for script, what in _SCRIPTS.items():
        register_policy(scenario, script, "marl_gem.scenarios.tau.scripts:policy", description=what, script=script)


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
        register(id, TauEnv, description=f"TAU: {folder}", agents=2, unavailable=f"{VARIABLE}: {error}")
