"""What is imported when the package, the help and the list of scenarios start, and that nothing is lost by it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import marl_gem
from marl_gem.lazy import lazy_names

ROOT = Path(__file__).parents[2]
PACKAGES = ("marl_gem", "marl_gem.wrappers", "marl_gem.convert", "marl_gem.scenarios.tasks")
RUN = "from marl_gem.cli import main; import sys; sys.argv = ['marl-gem', *{!r}]; main()"


def imported(code: str) -> set[str]:
    """What a fresh interpreter has imported after this code, also where that ends the program."""
    watched = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run([sys.executable, "-c", watched], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "marl_gem"}


def test_importing_the_package_imports_two_small_modules() -> None:
    modules = imported("import marl_gem")
    assert ours(modules) == {"marl_gem", "marl_gem.links", "marl_gem.lazy"}
    assert not modules & {"asyncio", "msgspec", "rich", "typer"}


def test_help_imports_the_table_of_commands_and_none_of_them() -> None:
    modules = imported(RUN.format(["--help"]))
    commands = {"__init__", "command", "examples", "exit_codes", "group", "interrupts", "terminal"}
    allowed = {"links", "lazy", "bounds", "errors", "overrides", "printable", "cli"}
    allowed |= {f"cli.{command}" for command in commands}
    assert ours(modules) - {"marl_gem"} <= {f"marl_gem.{name}" for name in allowed}
    assert not modules & {"asyncio", "msgspec", "importlib.metadata"}


def test_listing_imports_the_tables_of_scenarios_and_none_of_them() -> None:
    modules = imported(RUN.format(["list"]))
    assert {"marl_gem.registry", "marl_gem.scenarios.games"} <= modules
    parts = {".".join(name.split(".")[1:3]) for name in ours(modules)}
    assert not parts & {"env", "step_results", "views", "selectors", "wrappers", "tools", "policies", "llm", "runs"}
    assert not modules & {"asyncio", "ssl", "marl_gem.scenarios.games.blotto", "marl_gem.scenarios.tau.env"}


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_and_python_find_the_same_names(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    names: dict[str, str | None] = {}
    modules = {path.stem for path in Path(module.__file__).parent.iterdir()}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        names |= {alias.asname or alias.name: node.module for alias in node.names}
    assert names.keys() - {"list"} == set(module.__all__)  # an import of all names must not hide the built-in list
    for name, source in names.items():
        assert source is not None
        assert getattr(module, name) is getattr(importlib.import_module(source), name)
        assert name not in modules, "a module would take the place of the name"
    assert set(dir(module)) >= names.keys()


def test_modules_are_attributes_and_other_names_are_not() -> None:
    assert marl_gem.wrappers.limits.TimeLimit is marl_gem.wrappers.TimeLimit  # type: ignore[attr-defined]
    for package in PACKAGES:
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
            importlib.import_module(package).nothing  # noqa: B018
    get, names = lazy_names("marl_gem.wrappers", {"TimeLimit": "limits"})
    assert get("TimeLimit") is marl_gem.wrappers.TimeLimit  # type: ignore[attr-defined]
    assert "TimeLimit" in names()
