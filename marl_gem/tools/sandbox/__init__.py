"""Programs and commands that nobody trusts, confined by bubblewrap and held to limits."""

from marl_gem.tools.sandbox.check import Case, Verdict, check
from marl_gem.tools.sandbox.files import File, read_folder
from marl_gem.tools.sandbox.limits import Completed, Limits
from marl_gem.tools.sandbox.sandbox import Sandbox, StartedSandbox
from marl_gem.tools.sandbox.sessions import PythonSession, ShellSession

__all__ = [
    "Case",
    "Completed",
    "File",
    "Limits",
    "PythonSession",
    "Sandbox",
    "ShellSession",
    "StartedSandbox",
    "Verdict",
    "check",
    "read_folder",
]
