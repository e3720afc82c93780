"""The files of the page, its modules joined to one script.

A page then loads with one request instead of twenty, and from file://, where browsers load no modules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)

START, SCRIPT, BUNDLE = "app.js", "page.js", "bundle.js"
"""The module that begins, the script that the modules are joined to, and what static pages load besides."""


def read_page() -> dict[str, str]:
    """The files of the page by their names; all modules but `BUNDLE` are in `SCRIPT`."""
    page = {file.name: file.read_text("utf-8") for file in (files("marl_gem.viewer") / "page").iterdir()}
    modules = {name: text for name, text in page.items() if name.endswith(".js") and name != BUNDLE}
    rest = {name: text for name, text in page.items() if name not in modules}
    return rest | {SCRIPT: joined(modules, START)}


def joined(modules: Mapping[str, str], start: str) -> str:
    """JavaScript modules as one classic script, each in a function of its own, after those that it imports.

    Knows `import {a, b as c} from "./x.js"` and `export` before a function, a class or a const.

    Raises:
        ValueError: a module has another form of import or export, or imports go in a circle.
    """
    order: list[str] = []
    _visit(modules, start, order, ())
    return "\n".join(['"use strict";', "const modules = {};", *(_wrapped(name, modules[name]) for name in order)])


def _visit(modules: Mapping[str, str], name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules import each other: {' -> '.join([*above, name])}")
    if name not in order:
        for found in _IMPORT.finditer(modules[name]):
            _visit(modules, found[2], order, (*above, name))
        order.append(name)


def _wrapped(name: str, text: str) -> str:
    exported = [found[2] for found in _EXPORT.finditer(text)]
    text = _EXPORT.sub(r"\1", text)
    text = _IMPORT.sub(lambda found: f'const {{{found[1].replace(" as ", ": ")}}} = modules["{found[2]}"];', text)
    if left := re.search(r"^\s*(?:import|export)\b.*", text, re.MULTILINE):
        raise ValueError(f"{name} cannot be joined: {left[0].strip()}")
    return f'{{\n{text}\nmodules["{name}"] = {{ {", ".join(exported)} }};\n}}'
