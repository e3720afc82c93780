"""One page an area, each module of it by autodoc."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import NamedTuple

from sphinx.pycode import ModuleAnalyzer

import marl_gem
from generate.markdown import Undocumented, escape, table, toctree

AREAS: dict[str, tuple[str, ...]] = {
    "Contract": ("env", "step_results", "channels", "errors", "seeding"),
    "Types": ("types", "infos"),
    "Selectors": ("selectors",),
    "Wrappers": ("wrappers",),
    "Tools": ("tools",),
    "Registry and specs": ("registry", "specs", "seats", "settings", "overrides"),
    "Policies and views": ("policies", "agents", "replay", "views"),
    "Models": ("llm",),
    "Rollout": ("rollout", "recording", "episode_builder"),
    "Vector envs": ("vector", "env_threads"),
    "Runs": ("runs",),
    "Evaluation": ("evaluation", "evaluate", "analysis"),
    "Viewer and export": ("viewer", "export"),
    "Conversions": ("convert",),
    "Testing": ("testing",),
    "Trainers": ("trainers",),
    "Integrations": ("integrations",),
    "Scenarios": ("scenarios",),
}
"""Each area's modules or packages, without the leading `marl_gem.`."""

OTHER = "Other modules"
"""Where a module stands until it is put into an area."""

LONGEST_VALUE = 60
"""The value of data is shown up to this many characters."""

LEFT_OUT = (
    "cli",
    "links",
    "scenarios.tasks.code.problems",
    "scenarios.textarena",
    *(f"integrations.{part}" for part in ("openenv", "skyrl_gym", "tinker", "trl", "verifiers", "verl")),
    *(f"scenarios.tau.{part}" for part in ("airline", "retail", "common", "desk", "mini", "official", "tool")),
)
"""Modules and packages that are no API, or that other pages show: the commands, adapters to trainers, what scenarios
consist of."""


def modules() -> list[str]:
    """The names of all public modules of the package, without the leading `marl_gem.`, sorted.

    Files are listed, and not what `pkgutil` finds, because `marl_gem.selectors` is a package without `__init__.py`.
    """
    root = Path(marl_gem.__file__).parent
    return sorted(_walk(root, ""))


def _walk(folder: Path, prefix: str) -> list[str]:
    names = []
    for path in folder.iterdir():
        if path.name.startswith(("_", ".")):
            continue
        if path.suffix == ".py":
            names.append(prefix + path.stem)
        elif path.is_dir() and any(path.glob("*.py")):
            names += [prefix + path.name] if (path / "__init__.py").exists() else []
            names += _walk(path, f"{prefix}{path.name}.")
    return names


def area_of(module: str) -> str | None:
    """The area a module belongs to, `OTHER` where `AREAS` has none for it; None if the reference leaves it out."""
    top = module.partition(".")[0]
    if any(module == name or module.startswith(f"{name}.") for name in LEFT_OUT):
        return None
    for area, packages in AREAS.items():
        if top in packages:
            return area
    return OTHER


def pages() -> dict[str, str]:
    """The pages by name."""
    by_area: dict[str, list[str]] = {area: [] for area in (*AREAS, OTHER)}
    for module in modules():
        if area := area_of(module):
            by_area[area].append(module)
    made = {area: members for area, members in by_area.items() if members}
    result = {f"api/{_slug(area)}": _page(area, members) for area, members in made.items()}
    result["api/index"] = "# API\n\n" + toctree(_slug(area) for area in made) + "\n" + _top_level()
    return result


def _top_level() -> str:
    """What `import marl_gem` gives, and where each name is defined."""
    rows = []
    for name in sorted(marl_gem.__all__, key=str.lower):
        found = getattr(marl_gem, name)
        module = getattr(found, "__module__", type(found).__module__)
        summary = (inspect.getdoc(found) or "").partition("\n")[0]
        rows.append((f"{{py:obj}}`marl_gem.{name} <{module}.{name}>`", escape(summary)))
    return "## `marl_gem`\n\n" + table(("name", "what it is"), rows)


def _slug(area: str) -> str:
    return area.lower().replace(" ", "-")


def _page(area: str, members: list[str]) -> str:
    return f"# {area}\n\n" + "\n".join(_module(f"marl_gem.{module}") for module in members)


def _module(name: str) -> str:
    """A module's docstring, and below it what it defines in public, in the order of the source.

    Raises:
        Undocumented: the module, a class or a function has no docstring.
    """
    lines = [f".. automodule:: {name}", ""]
    module = importlib.import_module(name)
    if not module.__doc__:
        raise Undocumented(f"{name} has no docstring")
    for member in public(name):
        if member.value is None:
            found = getattr(module, member.name)
            kind = "class" if inspect.isclass(found) else "function"
            if not inspect.getdoc(found):
                raise Undocumented(f"{name}.{member.name} has no docstring")
            lines += [f".. auto{kind}:: {name}.{member.name}", "   :members:" if kind == "class" else "", ""]
        else:
            hidden = "   :no-value:" if len(member.value) > LONGEST_VALUE else ""
            lines += [f".. autodata:: {name}.{member.name}", hidden, ""]
    body = "\n".join(lines)
    return f"## `{name}`\n\n```{{eval-rst}}\n{body}\n```\n"


class Member(NamedTuple):
    """A public name of a module; of data the source of its value."""

    name: str
    value: str | None = None


def public(name: str) -> list[Member]:
    """The classes, functions and documented data that a module defines, without those that begin with _."""
    module = ModuleAnalyzer.for_module(name)
    module.analyze()
    members = []
    for node in ast.parse(module.code).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            members.append(Member(node.name))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and ("", target.id) in module.attr_docs:
                members.append(Member(target.id, ast.unparse(node.value) if node.value else ""))
    unique = {member.name: member for member in members if not member.name.startswith("_")}  # of overloads the last
    return [*unique.values()]
