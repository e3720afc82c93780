"""Reads an official checkout of sierra-research/tau-bench without running any of its code.

Tasks, tool schemas and the prompt of the simulated user are Python files there; they are read with `ast`. Nothing
outside the checkout is read: a link that leads out of it is an error.
"""

from __future__ import annotations

import ast
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.scenarios.tau.data_folder import HOW_TO_GET_IT
from marl_gem.scenarios.tau.dialogue import STOP
from marl_gem.types import read_json

TEST_TASKS = "tasks_test.py"

_UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)
"""What reading and parsing a file may raise. Python's parser raises MemoryError where code nests too deeply."""


@dataclass(frozen=True)
class ImportedDomain:
    """What a checkout holds of one domain.

    `tables` are the data files by name, as they are; `tasks` the tasks by split; `tools` the function schemas in
    the official order; `user_prompt` the system prompt of the official user simulator around {instruction} and
    {stop}, empty where it was not found.
    """

    tables: dict[str, bytes]
    tasks: dict[str, list[dict[str, Any]]]
    tools: list[Any]
    policy: bytes
    user_prompt: str
    records: int


class Checkout:
    """A folder that `git clone` made.

    Raises:
        RecordError: it is no checkout of tau-bench; the message says how to get one.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()
        self._envs = folder / "tau_bench" / "envs"
        if not self._envs.is_dir():
            raise RecordError(
                f"{folder} is no checkout of tau-bench: there is no tau_bench/envs in it. To begin, {HOW_TO_GET_IT}"
            )

    def domain(self, name: str) -> ImportedDomain:
        """Everything of one domain, "retail" or "airline".

        Raises:
            RecordError: a part is missing, empty or not as expected, or is a link that leads out of the checkout;
                the message names the file, and the line where there is one.
        """
        source = self._envs / name
        if not source.is_dir():
            raise RecordError(
                f"{source} is missing: this is no complete checkout of tau-bench. To begin, {HOW_TO_GET_IT}"
            )
        tables = sorted((source / "data").glob("*.json"))
        records = {file.stem: len(self._table(file)) for file in tables}
        _check_complete(name, source, records)
        return ImportedDomain(
            tables={file.name: self._bytes(file) for file in tables},
            tasks={file.stem.removeprefix("tasks_"): self._tasks(file) for file in sorted(source.glob("tasks_*.py"))},
            tools=self._tools(source / "tools"),
            policy=self._bytes(source / "wiki.md"),
            user_prompt=self._user_prompt(self._envs / "user.py"),
            records=sum(records.values()),
        )

    # Files

    def _bytes(self, file: Path) -> bytes:
        target = file.resolve()
        if not target.is_relative_to(self._root):
            raise RecordError(
                f"{file} is a link out of the checkout, to {target}; nothing there is read. Replace it by the file, or "
                f"clone the repository again"
            )
        try:
            return file.read_bytes()
        except OSError as error:
            raise RecordError(f"{file} cannot be read: {error}") from error

    def _text(self, file: Path) -> str:
        try:
            return self._bytes(file).decode("utf-8")
        except ValueError as error:
            raise RecordError(f"{file} cannot be read: {error}") from error

    def _table(self, file: Path) -> dict[str, Any]:
        try:
            table = read_json(self._text(file))
        except ValueError as error:
            raise RecordError(f"{file} cannot be read: {error}") from error
        if not isinstance(table, dict):
            raise RecordError(f"{file} holds no table of records")
        return table

    def _parse(self, file: Path) -> ast.Module:
        text = self._text(file)
        try:
            return ast.parse(text)
        except _UNREADABLE as error:
            raise RecordError(f"{file} cannot be read: {error or 'it is nested too deeply'}") from error

    # Tasks

    def _tasks(self, file: Path) -> list[dict[str, Any]]:
        """The tasks of the file's list of `Task(...)`."""
        for node in ast.walk(self._parse(file)):
            if isinstance(node, ast.List) and node.elts and all(_calls(element, "Task") for element in node.elts):
                return [_task(file, element) for element in node.elts]  # type: ignore[arg-type]
        raise RecordError(f"{file} holds no list of Task(...)")

    # Tools

    def _tools(self, folder: Path) -> list[Any]:
        """The schemas that the tools' `get_info` return, in the order of `ALL_TOOLS`."""
        schemas = {}
        for file in sorted(folder.glob("*.py")):
            for node in ast.walk(self._parse(file)):
                if isinstance(node, ast.ClassDef) and (method := _method(node, "get_info")):
                    schemas[node.name] = _literal(file, _returned(file, method))
        index = folder / "__init__.py"
        for node in ast.walk(self._parse(index)):
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "ALL_TOOLS" for t in node.targets):
                names = [element.id for element in getattr(node.value, "elts", ()) if isinstance(element, ast.Name)]
                unknown = [name for name in names if name not in schemas]
                if unknown or not names:
                    raise RecordError(f"{index}: no get_info was found for {unknown or 'any tool of ALL_TOOLS'}")
                return [schemas[name] for name in names]
        raise RecordError(f"{index} has no list ALL_TOOLS")

    # The simulated user

    def _user_prompt(self, file: Path) -> str:
        """What `LLMUserSimulationEnv.build_system_prompt` returns; empty if that is not found or too involved."""
        if not file.is_file():
            return ""
        for node in ast.walk(self._parse(file)):
            if isinstance(node, ast.ClassDef) and node.name == "LLMUserSimulationEnv":
                method = _method(node, "build_system_prompt")
                return _prompt(file, method) if method else ""
        return ""


def _check_complete(name: str, source: Path, records: dict[str, int]) -> None:
    """Report at once all that is missing: without a table, every call that needs it would be refused."""
    lacking = [file for file in (TEST_TASKS, "wiki.md", "tools/__init__.py") if not (source / file).is_file()]
    for table in importlib.import_module(f"marl_gem.scenarios.tau.{name}").TABLES:
        if not records.get(table):
            lacking.append(f"records in data/{table}.json" if table in records else f"data/{table}.json")
    if lacking:
        raise RecordError(
            f"{source} lacks {', '.join(lacking)}: this is no complete checkout of tau-bench. To begin, {HOW_TO_GET_IT}"
        )


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


def _prompt(file: Path, method: ast.FunctionDef) -> str:
    """The prompt around {instruction} and {stop}; empty if it is built in another way than is known."""
    variables = {
        target.id: node.value
        for node in ast.walk(method)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    try:
        text = _built(_returned(file, method), variables) or ""
    except RecursionError:
        return ""
    text = text.replace(STOP, "{stop}")
    return text if "{instruction}" in text and "{stop}" in text else ""


def _built(node: ast.expr, variables: dict[str, ast.expr]) -> str | None:
    """The text that an expression builds, with {instruction} in place of that; None if it does anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        if node.id == "instruction":
            return "{instruction}"
        value = variables.pop(node.id, None)  # once each, so that none can be built of itself
        return None if value is None else _built(value, variables)
    if isinstance(node, ast.IfExp):  # whether there is an instruction; here there always is one
        return _built(node.body, variables)
    if isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None:
        return _built(node.value, variables)
    parts: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        parts = node.values
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    texts = [_built(part, variables) for part in parts]
    return None if not texts or None in texts else "".join(text for text in texts if text is not None)


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _returned(file: Path, method: ast.FunctionDef) -> ast.expr:
    for node in ast.walk(method):
        if isinstance(node, ast.Return) and node.value is not None:
            return node.value
    raise RecordError(f"{file}, line {method.lineno}: {method.name} returns nothing")


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _field(file: Path, node: ast.Call, fields: dict[str | None, ast.expr], name: str) -> ast.expr:
    if name not in fields:
        raise RecordError(f"{file}, line {node.lineno}: there is no {name}")
    return fields[name]


def _literal(file: Path, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (TypeError, *_UNREADABLE) as error:
        line = getattr(node, "lineno", "?")
        raise RecordError(f"{file}, line {line}: a plain value was expected there, and nothing is run") from error
