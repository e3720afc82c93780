"""The reference, made from the code: no page of it is a copy that somebody has to keep up to date.

`write_pages` writes Markdown into docs/reference/generated (not in git) before Sphinx reads its sources:

    api.py        one page an area, for autodoc
    commands.py   every command of `marl-gem` with its options
    config.py     every field of a training configuration
    metrics.py    every metric that training logs
    scenarios.py  one page a family of scenarios
    wrappers.py   every wrapper that a text can name
    promises.py   what the contract promises, with the tests that hold each promise
    figure.py     the concept figure of the home page
    docstrings.py code blocks in docstrings, as reStructuredText wants them

Each raises `Undocumented` where the code does not say what the page needs, and the build fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from generate import api, commands, config, docstrings, figure, metrics, promises, scenarios, wrappers

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GENERATORS = (
    api.pages,
    commands.pages,
    config.pages,
    metrics.pages,
    promises.pages,
    scenarios.pages,
    wrappers.pages,
)


def write_pages(folder: Path) -> None:
    """Write every generated page into `folder`, and remove what is no longer generated.

    A page that is as it was is not touched, so that Sphinx reads only what has changed.

    Raises:
        Undocumented: something in the code has no description; the message names it.
    """
    written = set()
    for pages in GENERATORS:
        for name, text in pages().items():
            path = folder / f"{name}.md"
            written.add(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text("utf-8") != text:
                path.write_text(text, "utf-8")
    for path in folder.rglob("*.md"):
        if path not in written:
            path.unlink()


def draw_figure(path: Path) -> None:
    """Draw the concept figure into `path` if it is missing or older than the code that draws it."""
    if not path.exists() or path.stat().st_mtime < Path(figure.__file__).stat().st_mtime:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.draw(path)


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls: the hook for docstrings."""
    app.connect("autodoc-process-docstring", docstrings.process, priority=100)  # before napoleon
    return {"parallel_read_safe": True}
