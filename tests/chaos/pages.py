"""Runs in which every text is hostile, looked at in a browser and in a terminal.

Nothing in them may act: no script runs, no request leaves the viewer, nothing on the page is markup of theirs, and the
terminal gets no escape sequence of theirs.
"""

from __future__ import annotations

import io
import json
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from marl_gem.cli.terminal import SafeConsole
from marl_gem.errors import MarlGemError
from marl_gem.runs.library import RunLibrary
from marl_gem.tools.calls import write_call
from marl_gem.types import Episode, EpisodeError, Response, Role, ToolSpec, Turn, to_json
from marl_gem.viewer.server import Server
from marl_gem.viewer.text import show_episodes, show_runs, show_transcript
from tests.chaos.table import Row
from tests.viewer.recorded import NoBrowser, Page, chromium, png

RUNS = 100
HACK = "window.hacked=1"
MARKUP = (
    f"<script>{HACK}</script>",
    f"</script><script>{HACK}//",
    f'<img src=x onerror="{HACK}">',
    f'" onmouseover="{HACK}" autofocus onfocus="{HACK}',
    f"' onload='{HACK}",
    f"<svg onload={HACK}><animate onbegin={HACK} attributeName=x>",
    f'<iframe srcdoc="<script>parent.{HACK}</script>"></iframe>',
    f"<math><mtext></mtext><mglyph><style><img src=x onerror={HACK}>",
    '<base href="http://evil.invalid/"><link rel=stylesheet href="http://evil.invalid/x.css">',
    '<meta http-equiv="refresh" content="0;url=http://evil.invalid/">',
    "<form action=http://evil.invalid/><button>x</button></form>",
    '<style>@import "http://evil.invalid/x.css"; * { display: none }</style>',
    f"javascript:{HACK}",
    f"data:text/html,<script>{HACK}</script>",
    f"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='{HACK}'/>",
    "http://evil.invalid/picture.png",
    "//evil.invalid/x",
    "![x](http://evil.invalid/x.png) [y](javascript:alert(1)) | a | b |",
    f"{{{{constructor.constructor('{HACK}')()}}}} ${{{HACK}}} <%= {HACK} %> #{{{HACK}}}",
    "[red]markup of rich[/red] [/] [link=http://evil.invalid]x[/link]",
    "../../../../etc/passwd",
    "?run=x&key=1#/episode",
)
"""Shown exactly as they are."""

CONTROL = (
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1b]0;owned\x07\x1b[2J\x1b[1;1H",
    "\x9b31m\x9d8;;http://evil.invalid\x9c",
    "\x00\x08\x0b\x7f\r",
    "\u202eright to left\u2066\u200f",
    "\u200b\u2060\ufeff\U000e0041\U000e0100",
    "\ud800\udfff",
    "e" + "\u0301" * 300,
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
)
NAMES = (
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    "prototype",
    "__defineGetter__",
    "",
    " ",
    "0",
    "null",
)
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e0fff]"
)
RICH = re.compile(r"\x1b\[[0-9;]*m")

ACTIVE = """() => {
  const found = [...document.querySelectorAll("*")].flatMap((element) =>
    [...element.attributes]
      .filter(({ name, value }) =>
        name.startsWith("on") ||
        (["href", "src", "action"].includes(name) && /^\\s*(javascript|vbscript|data:text)/i.test(value)))
      .map(({ name }) => `${element.tagName} has ${name}`));
  const kinds = "script:not([src='page.js']), iframe, object, embed, base, form, style, meta[http-equiv], video";
  found.push(...[...document.querySelectorAll(kinds)].map((element) => element.outerHTML.slice(0, 80)));
  if (window.hacked) found.push("a script ran");
  return found;
}"""
"""What could act on the page and is not the viewer's."""


class Attack:
    """Hostile values, drawn from a seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        pieces = self.random.choices([*MARKUP, *CONTROL, *NAMES, "an ordinary word\n"], k=self.random.randint(1, 4))
        return " ".join([*pieces, *(["x" * 200_000] if self.random.random() < 0.02 else [])])

    def name(self) -> str:
        return self.random.choice(NAMES) if self.random.random() < 0.3 else self.text()

    def value(self, depth: int = 0) -> Any:
        kind = self.random.randint(0, 9)
        if kind == 0 and depth < 3:
            return {self.name(): self.value(depth + 1) for _ in range(3)}
        if kind == 1:
            return [self.value(depth + 1)] if depth < 3 else []
        if kind == 2:
            nested: Any = self.text()
            for _ in range(self.random.choice([5, 60])):
                nested = {self.random.choice(["a", "__proto__"]): nested}
            return nested
        return self.text() if kind > 4 else self.random.choice([None, True, -1e308, 2**70, "\n" * 50])

    def parts(self) -> list[dict[str, Any]]:
        return [
            {"type": "text", "text": self.text()},
            {"type": "image", "url": self.random.choice([png(), *MARKUP])},
            {"type": "tool_result", "name": self.name(), "text": self.text()},
            {"type": self.name(), self.name(): self.value()},
        ]

    def episode(self, seen: str, failed: bool = False) -> Episode:
        """An episode; `seen` is in its first observation."""
        agents = list(dict.fromkeys([self.name(), self.name(), "agent"]))
        response = Response(
            self.text() + write_call(self.name(), {self.name(): self.value()}) + f"<tool_call>{self.text()}",
            reasoning=self.text(),
            finish_reason=self.random.choice(["stop", "length"]),
        )
        turns = [Turn(agents[0], seen, response, info={"illegal": self.text(), self.name(): self.value()})]
        turns += [
            Turn(agent, self.parts(), response, reward=self.random.choice([1e308, -1.0, 0.0])) for agent in agents
        ]
        ending: Literal["error", "terminated"] = "error" if failed else "terminated"
        return Episode(
            id=self.name(),
            scenario=self.name(),
            seed=self.random.choice([0, 2**80]),
            turns=tuple(turns),
            returns=dict.fromkeys(agents, self.random.choice([0.0, 1e308])),
            ending=ending,
            models={agent: self.name() for agent in agents},
            error=EpisodeError("llm", self.name(), self.text(), self.name()) if failed else None,
            limit=self.name(),
            final_infos={
                agents[0]: {"failure": self.text(), "final_observation": self.value(), self.name(): self.value()}
            },
            options={self.name(): self.value()},
            roles={agents[0]: Role(self.text(), (ToolSpec(self.name(), self.text(), {self.name(): self.value()}),))},
        )

    def run(self, root: Path) -> str:
        """Write a run; returns what is in the first observation of its first episode."""
        seen = " ".join(["seen:", *self.random.sample(MARKUP, 4)])
        name = self.random.choice(
            ['<b onclick="x">', "a&run=b#'\"", "\u202eemos", "__proto__", "constructor", "x\x1b[31m"]
        )
        folder = root / name
        folder.mkdir()
        lines = [to_json(self.episode(seen)).encode(), to_json(self.episode(self.text())).encode()]
        lines += [
            self.text().replace("\n", " ").encode("utf-8", "replace"),
            b"\xff\xfe\x00" + self.random.randbytes(50),
        ]
        lines += [b'{"id":' * 5000, b"[" * 100_000, b"null", b"{}"]
        (folder / "episodes.jsonl").write_bytes(b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines))
        (folder / "errors.jsonl").write_text(to_json(self.episode(self.text(), failed=True)) + "\n")
        (folder / "config.json").write_text(json.dumps({"scenario": self.name(), self.name(): self.value()}))
        (folder / "report.json").write_text(
            self.random.choice([json.dumps({self.name(): self.value()}), "[" * 99_999, ""])
        )
        (folder / "<img src=x onerror=window.hacked=1>.png").write_text(self.text(), "utf-8", "replace")
        return seen


def long_round(seed: int, runs: int = RUNS) -> list[Row]:
    """Rows for the browser, which is left out where there is none, and for the terminal."""
    terminal = _Findings("a hostile run, in a terminal", "no escape sequence reaches the terminal; nothing raises")
    pages = _Findings("a hostile run, in Chromium", "no script runs, no request leaves, all is shown as text")
    try:
        with chromium() as browser:
            for number in range(runs):
                with _written(f"{seed} {number}") as (root, seen):
                    terminal.add(number, look_in_terminal(root))
                    pages.add(number, look_in_browser(browser, root, seen))
    except NoBrowser as error:
        return [Row(f"a hostile run, in a browser: left out, as {error}", "no script runs", 0)]
    return [pages.row(), terminal.row()]


def look_in_terminal(root: Path) -> list[str]:
    """What went wrong when everything of a run was printed."""
    problems = []
    for is_terminal in (True, False):
        file = io.StringIO()
        out = SafeConsole(file=file, force_terminal=is_terminal, width=120)
        library = RunLibrary(root)
        run = library.open(next(iter(library.runs())))
        show_runs(out, library)
        show_episodes(out, run, run.entries())
        for entry in run.entries():
            try:
                show_transcript(out, run, entry)
                for agent in list(entry.summary.returns)[:1] if entry.summary else ():
                    show_transcript(out, run, entry, agent)
            except MarlGemError as error:  # a line that is no episode
                out.print(str(error), markup=False)
        printed = RICH.sub("", file.getvalue())
        problems += [f"{found[0]!r} was printed" for found in FORBIDDEN.finditer(printed)][:1]
        problems += [] if "seen: " in printed else ["the first observation is missing"]
    return problems


def look_in_browser(browser: Any, root: Path, seen: str) -> list[str]:
    """What went wrong when every page of a run was visited."""
    server = Server(RunLibrary(root), 0)
    threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
    page = Page(browser, server)
    problems: list[str] = []
    try:
        for address, selector, keys in _pages(page):
            page.tab.goto("about:blank")
            tab = page.go(address)
            tab.wait_for_selector(selector)
            if "/episode" in address and "&key=1" in address and seen not in " ".join(tab.inner_text("main").split()):
                problems.append(f"{address}: the observation is not shown as text")
            page.press(*keys)
            tab.evaluate("() => document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
            tab.evaluate("() => document.querySelectorAll('button.more').forEach((button) => button.click())")
            problems += [f"{address}: {found}" for found in tab.evaluate(ACTIVE)]
    except Exception as error:  # what the page did not show in time
        problems.append(f"{page.tab.url}: {str(error)[:300]}")
    finally:
        page.tab.close()
        server.shutdown()
        server.server_close()
    problems += [f"console: {error[:200]}" for error in page.errors if "status of 404" not in error]
    problems += [
        f"request: {url[:200]}" for url in page.requested if not url.startswith((server.url, "data:", "about:"))
    ]
    return problems


def _pages(page: Page) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The address of every page of the only run, what it must show, and keys to press."""
    yield "#/?all=1", ".runs tbody tr", ("?", "?")
    yield "", ".rows .row", ("j", "x")
    run = page.tab.evaluate("new URLSearchParams(document.querySelector('.rows a').hash.split('?')[1]).get('run')")
    name = page.tab.evaluate("(name) => encodeURIComponent(name)", run)
    for key in ("1", "2", "e1"):
        yield f"#/episode?run={name}&key={key}", ".turn", ("e", "a", "a")
    yield f"#/episode?run={name}&key=4", "pre.raw", ()
    yield f"#/compare?run={name}&key=1&run2={name}&key2=2", ".pane >> nth=1", ("e",)
    yield f"#/run?run={name}&text=%3Cscript%3E&sort=turns", ".rows", ()
    hostile = page.tab.evaluate("(text) => encodeURIComponent(text)", MARKUP[0])
    yield f"#/episode?run={hostile}&key={hostile}", "text=cannot be shown", ()


class _Findings:
    """A row that is being filled."""

    def __init__(self, attack: str, promise: str) -> None:
        self._attack, self._promise, self._started = attack, promise, time.monotonic()
        self._cases, self._violations = 0, list[str]()

    def add(self, number: int, problems: list[str]) -> None:
        self._cases += 1
        self._violations += [f"run {number}: {'; '.join(problems)}"] if problems else []

    def row(self) -> Row:
        return Row(self._attack, self._promise, self._cases, self._violations, time.monotonic() - self._started)


@contextmanager
def _written(seed: str) -> Iterator[tuple[Path, str]]:
    """The folder of a hostile run, and what is seen in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), Attack(seed).run(Path(folder))
