"""Where the official data lies, and how it gets there.

The data of sierra-research/tau-bench does not ship with marl_gem:

    git clone https://github.com/sierra-research/tau-bench
    marl-gem tau import tau-bench

reads the checkout (see `checkout.py`) and writes it as JSON into a folder of this user's. Or `MARL_GEM_TAU_BENCH`
names a folder that holds `retail/` and `airline/` in the layout of `domain.py`.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.runs.files import replacing_folder
from marl_gem.scenarios.tau.checkout import HOW_TO_GET_IT, Checkout, ImportedDomain
from marl_gem.scenarios.tau.domain import OFFICIAL_USER_PROMPT

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
    if _is_domain(home() / domain):
        return ""
    if os.environ.get(VARIABLE):
        return f"{VARIABLE} is {str(home())!r}, but there is no {domain}/ with TAU-bench's data in it; {HOW}"
    return f"it needs the data of TAU-bench, which does not ship with marl_gem; {HOW}"


def _is_domain(folder: Path) -> bool:
    try:
        return (folder / "policy.md").is_file() and any(folder.glob("tasks_*.json"))
    except OSError:  # a name too long, a folder that may not be read
        return False


def import_checkout(checkout: Path, into: Path | None = None) -> dict[str, dict[str, int]]:
    """Read an official checkout, run none of it, and write both domains as JSON.

    Args:
        checkout: the folder that `git clone` made.
        into: where to write; by default where scenarios look. The files that an import writes replace those of an
            earlier one, all or none of them. Other files inside `retail/` and `airline/` stay: a `user.md`, notes.
            A folder that holds anything beside the two is left alone.

    Returns:
        For each domain how many records, tasks (by split), tools and official user prompts there are.

    Raises:
        RecordError: this is no complete checkout of tau-bench, or a file in it is not as expected (the message
            names the file and line), or `into` holds something else; nothing has been written.
    """
    source = Checkout(checkout)
    target = (into or home()).absolute()
    domains = {name: source.domain(name) for name in DOMAINS}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(target) as draft:
            for name, domain in domains.items():
                _write_domain(draft / name, domain)
            _keep_other_files(target, draft)
    except OSError as error:
        raise RecordError(f"cannot import {checkout} into {target}: {error}") from error
    return {name: _counts(domain) for name, domain in domains.items()}


def _write_domain(folder: Path, domain: ImportedDomain) -> None:
    (folder / "data").mkdir(parents=True)
    for name, content in domain.tables.items():
        (folder / "data" / name).write_bytes(content)
    for split, tasks in domain.tasks.items():
        _write(folder / f"tasks_{split}.json", tasks)
    _write(folder / "tools.json", domain.tools)
    (folder / "policy.md").write_bytes(domain.policy)
    if domain.user_prompt:
        (folder / OFFICIAL_USER_PROMPT).write_text(domain.user_prompt, "utf-8")


def _counts(domain: ImportedDomain) -> dict[str, int]:
    tasks = {f"{split} tasks": len(listed) for split, listed in domain.tasks.items()}
    user_prompts = int(bool(domain.user_prompt))
    return {"records": domain.records, **tasks, "tools": len(domain.tools), "official user prompts": user_prompts}


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def _keep_other_files(target: Path, draft: Path) -> None:
    """Copy into a new import what users put into an earlier one, if there is one.

    Raises:
        RecordError: the target holds something else than an import.
    """
    if not target.exists():
        return
    if not target.is_dir() or not all(entry.name in DOMAINS and _is_domain(entry) for entry in target.iterdir()):
        raise RecordError(f"{target} holds something else; name another folder with --into")
    _copy_what_is_missing(target, draft)


def _copy_what_is_missing(source: Path, target: Path) -> None:
    """Copy every file of a folder that another one does not have; links as links."""
    for folder, subfolders, files in os.walk(source):
        for name in (*subfolders, *files):
            entry = Path(folder) / name
            copy = target / entry.relative_to(source)
            if os.path.lexists(copy):
                continue
            if entry.is_symlink():
                copy.symlink_to(entry.readlink())
            elif entry.is_dir():
                copy.mkdir()
            else:
                shutil.copy2(entry, copy)
