"""Checks, when it is imported, that the package is complete.

In a clone `marl_gem/scenarios`, `marl_gem/selectors` and `marl_gem/trainers` are symbolic links to folders of the
repository. Git for Windows writes small text files instead where it may not make links.
"""

from __future__ import annotations

from pathlib import Path

NAMES = ("scenarios", "selectors", "trainers")

_broken = [name for name in NAMES if (Path(__file__).parent / name).is_file()]
if _broken:
    _files = " ".join(f"marl_gem/{name}" for name in _broken)
    raise ImportError(
        f"{_files}: a text file where a symbolic link should be, because this clone was made without symbolic links "
        "(the default of Git for Windows). Either turn on Developer Mode in the settings of Windows and run "
        f"`git config core.symlinks true`, delete {_files} and run `git checkout -- {_files}`; or install the wheel, "
        "which needs no links: `pip install marl-gem`"
    )
