"""Older names of `marl_gem.runs`, until all callers use that."""

from marl_gem.runs.files import write_file as write_whole
from marl_gem.runs.journal import Journal
from marl_gem.runs.lock import run_lock as locked

__all__ = ["Journal", "locked", "write_whole"]
