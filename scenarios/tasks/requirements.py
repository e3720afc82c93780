"""What suites of tasks need, looked for where they are registered, in well under a millisecond."""

from __future__ import annotations

import importlib.util
import shutil


def missing(module: str = "", package: str = "", extra: str = "") -> str:
    """Why scenarios that run programs in the sandbox cannot work here, and what would help; empty if they can.

    Args:
        module, package, extra: a module that is needed besides, with the package and the extra that install it.
    """
    if shutil.which("bwrap") is None:
        return "it runs programs in the sandbox, which needs bubblewrap: apt-get install bubblewrap"
    if module and importlib.util.find_spec(module) is None:
        return f"it needs the package {package!r}: pip install 'marl-gem[{extra}]'"
    return ""
