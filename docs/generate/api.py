"""One page an area, each module of it by autodoc."""

from __future__ import annotations

import inspect
import pkgutil

import marl_gem
from generate.markdown import Undocumented, escape, table, toctree

AREAS: dict[str, tuple[str, ...]] = {
    "Contract": ("env", "channels", "errors", "seeding"),
    "Types": ("types", "infos"),
    "Selectors": ("selectors",),
    "Wrappers": ("wrappers",),
    "Tools": ("tools",),
    "Registry and specs": ("registry", "specs", "seats", "settings", "overrides"),
    "Policies and views": ("policies", "agents", "replay", "views"),
    "Models": ("llm",),
    "Rollout": ("rollout", "recording", "episode_builder"),
    "Vector envs": ("vector",),
    "Runs": ("runs",),
    "Evaluation": ("evaluation", "evaluate"),
    "Viewer and export": ("viewer", "export"),
    "Conversions": ("convert",),
    "Testing": ("testing",),
    "Trainers": ("trainers",),
    "Scenarios": ("scenarios",),
}
"""Each area's modules or packages, without the leading `marl_gem.`."""

LEFT_OUT = ("cli",)
"""Documented elsewhere: the commands have a page."""


def modules() -> list[str]:
    """The names of all public modules of the package, without the leading `marl_gem.`, sorted."""
    return sorted(_walk("marl_gem", list(marl_gem.__path__)))


def _walk(package: str, folders: list[str]) -> list[str]:
    names = []
    for module in pkgutil.iter_modules(folders, f"{package}."):
        last = module.name.rpartition(".")[2]
        if last.startswith("_"):
            continue
        names.append(module.name.removeprefix("marl_gem."))
        if module.ispkg:
            names += _walk(module.name, [f"{folder}/{last}" for folder in folders])
    return names


def area_of(module: str) -> str | None:
    """The area a module belongs to; None if the reference leaves it out.

    Raises:
        Undocumented: the module belongs to no area.
    """
    top = module.partition(".")[0]
    if top in LEFT_OUT:
        return None
    for area, packages in AREAS.items():
        if top in packages:
            return area
    raise Undocumented(f"marl_gem.{module} is in no area of docs/generate/api.py; add {top!r} to one")


def pages() -> dict[str, str]:
    """The pages by name."""
    by_area: dict[str, list[str]] = {area: [] for area in AREAS}
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
    blocks = [
        f"## `marl_gem.{module}`\n\n```{{eval-rst}}\n.. automodule:: marl_gem.{module}\n   :members:\n```\n"
        for module in members
    ]
    return f"# {area}\n\n" + "\n".join(blocks)
