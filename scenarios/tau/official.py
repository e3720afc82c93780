"""How the official data gets to where it is read from: `marl-gem tau import`. See `data_folder.py`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.runs.files import replacing_folder
from marl_gem.scenarios.tau.checkout import Checkout, ImportedDomain
from marl_gem.scenarios.tau.data_folder import DOMAINS, home, is_domain
from marl_gem.scenarios.tau.domain import OFFICIAL_USER_PROMPT


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
    if not target.is_dir() or not all(entry.name in DOMAINS and is_domain(entry) for entry in target.iterdir()):
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
