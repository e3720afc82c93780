"""Where the official data lies, and how a checkout of it is read without running any of its code.

The data of sierra-research/tau-bench does not ship with marl_gem:

    git clone https://github.com/sierra-research/tau-bench
    marl-gem tau import tau-bench

reads tasks and tool schemas, which are Python files there, with `ast`, and writes them as JSON into a folder of
this user's. Or `MARL_GEM_TAU_BENCH` names a folder that holds `retail/` and `airline/` in the layout of
`domain.py`.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.types import read_json

VARIABLE = "MARL_GEM_TAU_BENCH"
DOMAINS = ("retail", "airline")
HOW = (
    "get it with `git clone https://github.com/sierra-research/tau-bench`, then `marl-gem tau import tau-bench`; or "
    f"set {VARIABLE} to a folder that holds retail/ and airline/"
)


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
        into: where to write; by default where scenarios look. What an earlier import wrote there is replaced
            whole, or not at all; a folder that holds anything else is left alone.

    Returns:
        For each domain how many records, tasks (by split) and tools there are.

    Raises:
        RecordError: this is no checkout of tau-bench, or a file in it is not as expected (the message names the
            file and line), or `into` holds something else; nothing has been written.
    """
    envs = checkout / "tau_bench" / "envs"
    if not envs.is_dir():
        raise RecordError(f"{checkout} is no checkout of tau-bench: there is no tau_bench/envs in it. To begin, {HOW}")
    target = (into or home()).absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise RecordError(f"cannot write to {target.parent}: {error}") from error
    try:
        counts = {domain: _import_domain(envs / domain, scratch / domain) for domain in DOMAINS}
        _replace(target, scratch)
    except OSError as error:
        raise RecordError(f"cannot import {checkout} into {target}: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return counts


def _import_domain(source: Path, target: Path) -> dict[str, int]:
    if not source.is_dir():
        raise RecordError(f"{source} is missing: this is no whole checkout of tau-bench. To begin, {HOW}")
    (target / "data").mkdir(parents=True)
    counts = {"records": 0}
    for file in sorted((source / "data").glob("*.json")):
        table = _json(file)
        if not isinstance(table, dict):
            raise RecordError(f"{file} holds no table of records")
        counts["records"] += len(table)
        shutil.copyfile(file, target / "data" / file.name)
    tasks = {split: _tasks(file) for split, file in _task_files(source).items()}
    if not counts["records"] or not tasks:
        raise RecordError(f"{source} has no data/*.json or no tasks; is the checkout whole?")
    for split, found in tasks.items():
        _write(target / f"tasks_{split}.json", found)
        counts[f"{split} tasks"] = len(found)
    tools = _tools(source / "tools")
    _write(target / "tools.json", tools)
    counts["tools"] = len(tools)
    shutil.copyfile(_existing(source / "wiki.md"), target / "policy.md")
    return counts


def _task_files(source: Path) -> dict[str, Path]:
    """The file of each split; a domain with but one list of tasks has them in `tasks.py`."""
    files = {file.stem.removeprefix("tasks_"): file for file in sorted(source.glob("tasks_*.py"))}
    return files or {"test": _existing(source / "tasks.py")}


def _tasks(file: Path) -> list[dict[str, Any]]:
    """The tasks of the file's list of `Task(...)`."""
    for node in ast.walk(_parse(file)):
        if isinstance(node, ast.List) and node.elts and all(_calls(element, "Task") for element in node.elts):
            return [_task(file, element) for element in node.elts]  # type: ignore[arg-type]
    raise RecordError(f"{file} holds no list of Task(...)")


def _task(file: Path, node: ast.Call) -> dict[str, Any]:
    fields = {keyword.arg: keyword.value for keyword in node.keywords}
    actions = fields.get("actions")
    if not isinstance(actions, ast.List) or not all(_calls(action, "Action") for action in actions.elts):
        raise RecordError(f"{file}, line {node.lineno}: this task's actions are no list of Action(...)")
    return {
        "annotator": _literal(file, fields.get("annotator", ast.Constant(""))),
        "user_id": _literal(file, _field(file, node, fields, "user_id")),
        "instruction": _literal(file, _field(file, node, fields, "instruction")),
        "actions": [_action(file, action) for action in actions.elts],  # type: ignore[arg-type]
        "outputs": _literal(file, fields.get("outputs", ast.List([]))),
    }


def _action(file: Path, node: ast.Call) -> dict[str, Any]:
    fields = {keyword.arg: keyword.value for keyword in node.keywords}
    return {name: _literal(file, _field(file, node, fields, name)) for name in ("name", "kwargs")}


def _tools(folder: Path) -> list[Any]:
    """The schemas that the tools' `get_info` return, in the order of `ALL_TOOLS`."""
    schemas = {}
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(_parse(file)):
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "get_info":
                        schemas[node.name] = _returned(file, method)
    index = _existing(folder / "__init__.py")
    for node in ast.walk(_parse(index)):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "ALL_TOOLS" for t in node.targets):
            names = [element.id for element in getattr(node.value, "elts", ()) if isinstance(element, ast.Name)]
            unknown = [name for name in names if name not in schemas]
            if unknown or not names:
                raise RecordError(f"{index}: no get_info was found for {unknown or 'any tool of ALL_TOOLS'}")
            return [schemas[name] for name in names]
    raise RecordError(f"{index} has no list ALL_TOOLS")


def _returned(file: Path, method: ast.FunctionDef) -> Any:
    for node in ast.walk(method):
        if isinstance(node, ast.Return) and node.value is not None:
            return _literal(file, node.value)
    raise RecordError(f"{file}, line {method.lineno}: get_info returns nothing")


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _field(file: Path, node: ast.Call, fields: dict[str | None, ast.expr], name: str) -> ast.expr:
    if name not in fields:
        raise RecordError(f"{file}, line {node.lineno}: there is no {name}")
    return fields[name]


def _literal(file: Path, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError) as error:
        line = getattr(node, "lineno", "?")
        raise RecordError(f"{file}, line {line}: a plain value was expected there, and nothing is run") from error


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise RecordError(f"{file} cannot be read: {error}") from error


def _json(file: Path) -> Any:
    try:
        return read_json(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} cannot be read: {error}") from error


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise RecordError(f"{file} is missing: this is no whole checkout of tau-bench. To begin, {HOW}")
    return file


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def _replace(target: Path, scratch: Path) -> None:
    """Put a new folder where an old one may be."""
    old = Path(f"{scratch}-old")
    if target.exists():
        if not target.is_dir() or not all(place.name in DOMAINS and _is_domain(place) for place in target.iterdir()):
            raise RecordError(f"{target} holds something else; name another folder with --into")
        target.rename(old)
    scratch.chmod(0o755)
    scratch.rename(target)
    shutil.rmtree(old, ignore_errors=True)
