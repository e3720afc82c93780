"""Whether this machine can confine programs; where it cannot, tests of confinement are skipped with the reason."""

from __future__ import annotations

import pytest

from marl_gem.errors import SandboxUnavailable
from marl_gem.tools.sandbox import Sandbox


def missing() -> str:
    """Why programs cannot be confined here, or nothing."""
    try:
        Sandbox()
    except SandboxUnavailable as error:
        return str(error)
    return ""


confined = pytest.mark.skipif(bool(missing()), reason=missing())
