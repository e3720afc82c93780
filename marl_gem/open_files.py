"""How many files this process may still open. Connections count as files."""

from __future__ import annotations

import os
from contextlib import suppress

RESERVE = 48
"""Files that are left for the journal, libraries and what a scenario reads."""


def count_open_files() -> int:
    """How many files this process has open; 0 where the system does not say."""
    try:
        return len(os.listdir("/dev/fd"))  # noqa: PTH208 - names alone, without a stat of each
    except OSError:
        return 0


def most_open_files() -> int | None:
    """How many files this process may have open; None if there is no limit that is known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def file_limit(better: int) -> str:
    """The limit in words, with advice; `better` is a limit that would do."""
    return f"this process may have {most_open_files()} files open; `ulimit -n {better}` before the start allows more"


def files_left(wanted: int) -> int:
    """How many more files this process may open; `RESERVE` of them are left out.

    If that is fewer than `wanted`, the limit is raised, as far as the system allows.

    Returns:
        at most `wanted`, at least 0.
    """
    needed = count_open_files() + RESERVE + wanted
    most = most_open_files()
    if most is not None and most < needed:
        most = _raise_limit(most, needed)
    return wanted if most is None else max(0, min(wanted, most - (needed - wanted)))


def _raise_limit(soft: int, needed: int) -> int:
    """Set the soft limit to the hard one; or, where the system refuses that (macOS), to what is needed."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, needed):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            break
    return most_open_files() or soft
