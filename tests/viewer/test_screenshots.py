"""The layout of the page with runs as people have them, on a phone and on a desk, in light and in dark.

With MARL_GEM_SCREENSHOTS=DIR every picture is written there, for people to look at.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.viewer import cases
from tests.viewer.recorded import Page, episode, write_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AUDIT = Path(__file__).with_name("audit.js").read_text("utf-8")
WIDTHS = (1400, 390)


def village_run(folder: Path) -> Path:
    return write_run(folder, [cases.village()])


Make = Callable[[Path], Path]

CASES: dict[str, tuple[Make, dict[str, tuple[str, str]]]] = {
    "demo": (
        cases.training_run,
        {
            "run": ("#/run?run=demo", ".rows .row"),
            "curves": ("#/training?run=demo", ".curve svg"),
            "episode": ("#/episode?run=demo&key=1", ".turns[data-complete]"),
        },
    ),
    "empty": (cases.empty_run, {"run": ("#/run?run=empty", "main h1")}),
    "failed": (
        cases.failed_run,
        {
            "run": ("#/run?run=failed", ".rows .row"),
            "unsolved": ("#/episode?run=failed&key=1", ".whybox"),
            "error": ("#/episode?run=failed&key=2", ".whybox"),
            "pair": ("#/compare?run=failed&key=1&run2=failed&key2=3", ".pane >> nth=1"),
        },
    ),
    "village": (
        village_run,
        {
            "run": ("#/run?run=village", ".rows .row"),
            "episode": ("#/episode?run=village&key=1", ".turns[data-complete]"),
            "turn": ("#/episode?run=village&key=1&turn=60", ".turn.selected"),
        },
    ),
    "languages": (
        cases.languages_run,
        {
            "run": ("#/run?run=languages", ".rows .row"),
            "episode": ("#/episode?run=languages&key=1", ".turns[data-complete]"),
        },
    ),
    "grid": (cases.grid, {"runs": ("#/?all=1", ".runs")}),
    "long": (cases.long_run, {"run": ("#/run?run=long", "text=/20,000 episodes/")}),
}


def problems(tab: Any, name: str) -> list[str]:
    """What is wrong with the page in each width and theme; takes the pictures, too."""
    found = []
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)
            tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            wrong = tab.evaluate(AUDIT, scheme == "dark")  # the layout is that of the light page
            found += [f"{name}, {width} px, {scheme}: {problem}" for problem in wrong]
            if folder := os.environ.get("MARL_GEM_SCREENSHOTS"):
                tab.screenshot(path=f"{folder}/{name}-{width}-{scheme}.png")
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_layout_holds(tmp_path: Path, show: Callable[..., Page], case: str) -> None:
    make, addresses = CASES[case]
    page = show(make(tmp_path / case))
    found = []
    for name, (address, ready) in addresses.items():
        page.tab.goto("about:blank")
        tab = page.go(address)
        tab.wait_for_selector(ready)
        found += problems(tab, f"{case}-{name}")
    assert not found, "\n".join(found)


def test_the_layout_holds_with_everything_unfolded(tmp_path: Path, show: Callable[..., Page]) -> None:
    for name, make in {"failed": cases.failed_run, "languages": cases.languages_run, "village": village_run}.items():
        make(tmp_path / name)
    page = show(tmp_path)
    found = []
    for name in ("failed", "languages", "village"):
        page.tab.goto("about:blank")
        tab = page.go(f"#/episode?run={name}&key=1")
        tab.wait_for_selector(".turns[data-complete]")
        page.press("e")
        tab.wait_for_selector("main details:not([open])", state="detached")
        found += problems(tab, f"{name}-unfolded")
    assert not found, "\n".join(found)


def test_the_audit_finds_what_is_wrong(tmp_path: Path, show: Callable[..., Page]) -> None:
    """Each kind of damage to a good page is noticed."""
    tab = show(write_run(tmp_path / "run", [episode(0)])).go("#/episode?run=run&key=1")
    tab.wait_for_selector(".turns[data-complete]")
    for damage, complaint in {
        ".turn { min-width: 3000px }": "wider than the window",
        ".facts .agent { width: 10px; overflow: hidden; white-space: nowrap }": "cut without a way to read it",
        ".turn header { height: 0; overflow: visible; margin-bottom: -12px } .response { margin-top: -70px }": "text",
        ".response .text { color: #aaa !important; background: #fff }": "too little contrast",
        ".seatlist .agent { width: 8px; overflow-wrap: anywhere }": "a name in many lines",
    }.items():
        tab.evaluate("(css) => document.adoptedStyleSheets.push(Object.assign(new CSSStyleSheet()))", damage)
        tab.evaluate("(css) => document.adoptedStyleSheets.at(-1).replaceSync(css)", damage)
        assert any(complaint in line for line in tab.evaluate(AUDIT)), damage
        tab.evaluate("document.adoptedStyleSheets.pop()")
    assert tab.evaluate(AUDIT) == []
