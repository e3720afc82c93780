"""Where the official data lies. It does not ship with marl_gem:

    git clone https://github.com/sierra-research/tau-bench
    marl-gem tau import tau-bench

writes it as JSON into a folder of this user's (see `official.py`). Or `MARL_GEM_TAU_BENCH` names a folder that holds
`retail/` and `airline/` in the layout of `domain.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

HOW_TO_GET_IT = (
    "get it with `git clone https://github.com/sierra-research/tau-bench`, then `marl-gem tau import tau-bench`"
)
VARIABLE = "MARL_GEM_TAU_BENCH"
DOMAINS = ("retail", "airline")
HOW = f"{HOW_TO_GET_IT}; or set {VARIABLE} to a folder that holds retail/ and airline/"


def home() -> Path:
    """The folder that official data is read from: what the variable names, or where it is imported to."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "marl_gem" / "tau_bench"


def missing(domain: str) -> str:
    """Why an official domain cannot be played here and what would help; empty if it can."""
    if is_domain(home() / domain):
        return ""
    if os.environ.get(VARIABLE):
        return f"{VARIABLE} is {str(home())!r}, but there is no {domain}/ with TAU-bench's data in it; {HOW}"
    return f"it needs the data of TAU-bench, which does not ship with marl_gem; {HOW}"


def is_domain(folder: Path) -> bool:
    """Whether a folder holds the data of a domain."""
    try:
        return (folder / "policy.md").is_file() and any(folder.glob("tasks_*.json"))
    except OSError:  # a name too long, a folder that may not be read
        return False
