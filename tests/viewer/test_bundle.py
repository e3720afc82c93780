"""Static pages of runs: `marl-gem view --bundle`, looked at from file:// and from a static server."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.errors import MarlGemError
from marl_gem.runs.library import RunLibrary
from marl_gem.types import Response, Turn
from marl_gem.viewer import bundle
from marl_gem.viewer.api import Api
from marl_gem.viewer.bundle import MARKER, write_bundle
from marl_gem.viewer.query import Query
from marl_gem.viewer.scripts import joined
from tests.viewer.cases import failed_run, training_run
from tests.viewer.recorded import HOSTILE, episode, failed, games, write_run

SECRET = "sk-live-0123456789abcdef"


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[[str], Any]]:
    """Open an address in a tab, and check afterwards that nothing failed and nothing was asked of anybody else."""
    tabs: list[tuple[Any, str, list[str], list[str]]] = []

    def start(url: str) -> Any:
        tab = browser.new_page()
        tab.set_default_timeout(30_000)
        errors: list[str] = []
        requested: list[str] = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.extend([message.text] * (message.type == "error")))
        tab.on("request", lambda request: requested.append(request.url))
        tab.goto(url)
        tab.wait_for_selector("main > *")
        tabs.append((tab, url.partition("#")[0].rpartition("/")[0], errors, requested))
        return tab

    yield start
    for tab, base, errors, requested in tabs:
        tab.close()
        assert not errors, errors
        assert all(url.startswith((base, "data:", "blob:")) for url in requested), requested


@pytest.fixture
def static(tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """Serve a folder as any static server does; gives its address."""
    servers: list[http.server.ThreadingHTTPServer] = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    def start(folder: Path) -> str:
        handler = functools.partial(Quiet, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def two_runs(folder: Path) -> Path:
    write_run(folder / "talks", [episode(n) for n in range(60)], [failed(99)])
    training_run(folder / "demo")
    return folder


def walk_through(tab: Any) -> None:
    """From the list of runs to an episode and on."""
    tab.wait_for_selector("text=demo")
    tab.click("main >> text=talks >> nth=0")
    tab.wait_for_selector('text="61 episodes"')
    tab.fill("input[type=search]", "(17)")
    tab.wait_for_selector("text=1 of 61 episodes")
    tab.fill("input[type=search]", "")
    tab.wait_for_selector('text="61 episodes"')
    tab.click("button.chip.error")
    tab.wait_for_selector("text=1 of 61 episodes")
    tab.click("button.chip.error")
    tab.wait_for_selector('text="61 episodes"')
    tab.click(".rows .row >> nth=2")
    tab.wait_for_selector(".turns[data-complete]")
    assert "It is Sunny." in tab.text_content(".turns") and tab.locator(".turn button >> text=tokens").count() == 0
    tab.keyboard.press("J")
    tab.wait_for_selector("h1 >> text=talk-3")
    tab.keyboard.press("c")
    tab.wait_for_selector(".pair .pane >> nth=1")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of `two_runs`."""
    folder = tmp_path_factory.mktemp("bundle")
    written = write_bundle(RunLibrary(two_runs(folder / "runs")), folder / "shared")
    assert (written.runs, written.episodes, written.left_out) == (2, 73, 0)
    return folder / "shared"


@pytest.mark.browser
def test_the_pages_work_from_a_file(shared: Path, opened: Callable[[str], Any]) -> None:
    index = (shared / "index.html").as_uri()
    tab = opened(index)
    walk_through(tab)
    tab.goto(f"{index}#/training?run=demo")
    tab.wait_for_selector(".curve svg")
    tab.goto(f"{index}#/episode?run=talks&key=2&turn=3")
    tab.wait_for_selector(".turn.selected[data-number='3']")
    tab.goto(f"{index}#/episode?run=talks&key=999")
    tab.wait_for_selector("text=these pages have no episode")


@pytest.mark.browser
def test_the_pages_work_from_a_static_server(
    shared: Path, opened: Callable[[str], Any], static: Callable[[Path], str]
) -> None:
    tab = opened(f"{static(shared)}#/run?run=talks")
    tab.wait_for_selector(".rows .row >> nth=2")
    tab.click(".rows .row >> nth=2")
    tab.wait_for_selector(".turns[data-complete]")


@pytest.mark.browser
def test_runs_are_compared_and_a_download_is_the_record(tmp_path: Path, opened: Callable[[str], Any]) -> None:
    lost = {"returns": {"user": 0.0, "assistant": 0.0}, "final_infos": {}}
    write_run(tmp_path / "runs" / "first", [episode(n) for n in range(4)], [failed(9)])
    write_run(tmp_path / "runs" / "second", [episode(n, **(lost if n == 2 else {})) for n in range(4)])
    write_run(tmp_path / "runs" / "third", [episode(0, scenario="other")], scenario="test:Other-v0")
    library = RunLibrary(tmp_path / "runs")
    written = write_bundle(library, tmp_path / "shared")
    api, index = Api(library), written.index.as_uri()
    tab = opened(f"{index}#/?all=1&pick=first&pick=second")
    tab.wait_for_selector("a.primary >> text=Compare")
    tab.click("a.primary")
    tab.wait_for_selector("text=talk-2")
    for run, run2 in (("first", "second"), ("second", "first")):
        there = api.comparison({"run": [run], "run2": [run2]})
        here = tab.evaluate("(asked) => bundle.answer('comparison', asked)", {"run": run, "run2": run2})
        assert here["parts"] == json.loads(json.dumps(there["parts"]))
    refused = "(asked) => bundle.answer('comparison', asked).catch((error) => error.message)"
    for_others = tab.evaluate(refused, {"run": "first", "run2": "third"})
    assert "no comparison of first and third" in for_others
    lines = (tmp_path / "runs" / "first" / "episodes.jsonl").read_text().splitlines()
    tab.goto(f"{index}#/episode?run=first&key=3")
    tab.wait_for_selector(".turns[data-complete]")
    with tab.expect_download() as download:
        tab.click("text=Download")
    assert Path(download.value.path()).read_text() == lines[2]


@pytest.mark.browser
def test_hostile_texts_do_not_run_from_a_file(tmp_path: Path, opened: Callable[[str], Any]) -> None:
    text = f"{HOSTILE}</script>\u2028\"); window.hacked=1; ('`${{window.hacked=1}}`<!--<script>"
    turns = (
        Turn(text, text, Response(text)),
        Turn("__proto__", "**x** [a](javascript:window.hacked=1)", Response("-")),
    )
    returns = {text: 1.0, "__proto__": 0.0}
    hostile = episode(0, id=text, turns=turns, returns=returns, models=dict.fromkeys(returns, text), final_infos={})
    folder = write_run(tmp_path / "runs" / "<b>&'\"", [hostile], scenario=text)
    written = write_bundle(RunLibrary(folder.parent), tmp_path / "shared")
    tab = opened(written.index.as_uri())
    for address, ready in {
        "#/?all=1": ".runs",
        "#/run?run=%3Cb%3E%26%27%22": ".rows .row",
        "#/episode?run=%3Cb%3E%26%27%22&key=1": ".turns[data-complete]",
    }.items():
        tab.goto(f"{written.index.as_uri()}{address}")
        tab.wait_for_selector(ready)
        assert tab.evaluate("window.hacked") is None
        assert tab.locator("main script, main style, main iframe, main [onerror]").count() == 0
    assert "<script>window.hacked=1</script>" in tab.text_content(".turn >> nth=0")
    assert tab.locator(".seatlist .agent").all_inner_texts()[1] == "__proto__"


@pytest.mark.browser
def test_the_policy_of_the_pages_refuses_scripts_and_requests(tmp_path: Path, browser: Any) -> None:
    written = write_bundle(RunLibrary(write_run(tmp_path / "run", [episode(0)])), tmp_path / "shared")
    tab = browser.new_page()
    tab.goto(written.index.as_uri())
    tab.wait_for_selector("main > *")
    tab.evaluate(
        """() => {
          try {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.head.append(script);
          } catch {}
          try { document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hacked=1'>"); } catch {}
        }"""
    )
    refused = tab.evaluate("fetch('https://example.com/').then(() => 'sent', () => 'refused')")
    assert refused == "refused" and tab.evaluate("window.hacked") is None
    tab.close()


@pytest.mark.browser
def test_filters_and_orders_of_the_pages_are_those_of_the_viewer(tmp_path: Path, opened: Callable[[str], Any]) -> None:
    """The pages answer as the server does, for every filter, order and seat."""
    folder = write_run(tmp_path / "run", games("game:KuhnPoker-v0", 40), [failed(7)])
    with (folder / "episodes.jsonl").open("a") as file:
        file.write("no episode\n")
    failed_run(tmp_path / "other")
    library = RunLibrary(tmp_path)
    api = Api(library)
    tab = opened(write_bundle(library, tmp_path / "shared").index.as_uri())
    asked: list[dict[str, Any]] = [{}, {"reverse": "1"}, {"text": "card: k"}, {"text": "503"}, {"seat": "player_1"}]
    asked += [{"filter": [name]} for name in api.run({"run": ["run"]})["filters"]]
    asked += [
        {"sort": name, "reverse": reverse} for name in api.run({"run": ["run"]})["sorts"] for reverse in ("", "1")
    ]
    asked += [{"filter": ["win"], "seat": "player_0", "sort": "return"}, {"model": "random", "filter": ["loss"]}]
    questions: list[tuple[str, dict[str, Any]]] = []
    for run in ("run", "other"):
        questions += [("episodes", {"run": run, "count": 500} | query) for query in asked]
        questions += [(name, {"run": run, "key": key}) for key in "123" for name in ("counterpart", "position")]
    answers = tab.evaluate("(all) => Promise.all(all.map(([name, asked]) => bundle.answer(name, asked)))", questions)
    for (name, question), here in zip(questions, answers, strict=True):
        parameters = {part: value if isinstance(value, list) else [str(value)] for part, value in question.items()}
        there = api.questions[name](parameters)
        if name == "episodes":
            assert [row["key"] for row in here["rows"]] == [row["key"] for row in there["rows"]], question
            here, there = here["total"], there["total"]
        assert here == there, question


def data(folder: Path, files: str = "*.js") -> str:
    return "".join(file.read_text() for file in sorted((folder / "data").rglob(files)))


def test_secrets_and_folders_of_this_machine_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    turns = (Turn("a", f"the key is {SECRET}", Response(json.dumps({"key": SECRET}))),)
    seats = {"a": f"qwen@https://user:{SECRET[:12]}@host/v1?token=abcdefghij"}
    folder = write_run(tmp_path / "private" / "run", [episode(0, turns=turns)], seats=seats)
    write_bundle(RunLibrary(folder), tmp_path / "shared")
    written = data(tmp_path / "shared")
    assert "the key is" in written and "qwen@https" in written
    for hidden in (SECRET, SECRET[:12], "abcdefghij", str(tmp_path)):
        assert hidden not in written


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "TEXT", 1000)
    long = episode(0, turns=(Turn("a", "y" * 5000, Response("x")),))
    library = RunLibrary(write_run(tmp_path / "run", [long, *(episode(n) for n in range(1, 30))]))
    written = write_bundle(library, tmp_path / "first", most=10)
    assert (written.episodes, written.left_out) == (10, 20)
    texts = data(tmp_path / "first", "episodes-*.js")
    assert "y" * 1001 not in texts and "the record has 5,000 characters" in texts
    monkeypatch.setattr(bundle, "RECORD", 4000)
    write_bundle(library, tmp_path / "short")
    assert "y" * 1001 not in data(tmp_path / "short") and "cloudless" in data(tmp_path / "short", "records-*.js")
    monkeypatch.setattr(bundle, "BYTES", 20_000)
    written = write_bundle(library, tmp_path / "second")
    assert 0 < written.episodes < 30 and written.episodes + written.left_out == 30


def test_the_episodes_that_a_query_selects_are_written(tmp_path: Path) -> None:
    library = RunLibrary(write_run(tmp_path / "run", [episode(n) for n in range(20)]))
    written = write_bundle(library, tmp_path / "shared", Query(text="(17)"))
    assert written.episodes == 1 and "talk-17" in data(tmp_path / "shared")


def test_nothing_is_replaced_but_a_bundle_and_only_by_force(tmp_path: Path) -> None:
    library = RunLibrary(write_run(tmp_path / "run", [episode(0)]))
    with pytest.raises(MarlGemError, match="is no bundle"):
        write_bundle(library, tmp_path / "run", force=True)
    (tmp_path / "empty").mkdir()
    write_bundle(library, tmp_path / "empty")
    with pytest.raises(MarlGemError, match="--force replaces it"):
        write_bundle(library, tmp_path / "empty")
    (tmp_path / "empty" / "index.html").write_text("old")
    write_bundle(library, tmp_path / "empty", force=True)
    assert "<!doctype html>" in (tmp_path / "empty" / "index.html").read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_bundle_that_is_broken_off_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    library = RunLibrary(write_run(tmp_path / "run", [episode(0), episode(1)]))
    (tmp_path / "out").mkdir()
    before = write_bundle(library, tmp_path / "out" / "shared").index.read_text()

    def fail(self: Any, parameters: Any) -> Any:
        raise error

    monkeypatch.setattr(Api, "curves", fail)
    monkeypatch.setattr(Api, "episode", fail)
    for name in ("shared", "new"):
        with pytest.raises((KeyboardInterrupt, MarlGemError)):
            write_bundle(library, tmp_path / "out" / name, force=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["shared"]
    assert (tmp_path / "out" / "shared" / "index.html").read_text() == before


def test_the_command_writes_a_bundle_and_serves_nothing(tmp_path: Path) -> None:
    two_runs(tmp_path / "runs")
    arguments = ["view", str(tmp_path / "runs"), "--run", "talks", "--bundle", str(tmp_path / "shared"), "-n", "5"]
    result = CliRunner().invoke(app, arguments)
    assert (
        result.exit_code == 0 and "1 runs, 5 episodes" in result.stdout and "56 episodes are left out" in result.stdout
    )
    assert (tmp_path / "shared" / MARKER).exists() and "game:TicTacToe" not in data(tmp_path / "shared")


def test_modules_are_joined_in_their_order_or_refused() -> None:
    modules = {
        "a.js": 'import { b as c, d } from "./b.js";\nexport const a = c + d;\n',
        "b.js": "export const b = 1;\nexport const d = 2;\n",
    }
    script = joined(modules, "a.js")
    assert script.index('modules["b.js"] = { b, d }') < script.index('const { b: c, d } = modules["b.js"]')
    assert "import" not in script and "export" not in script
    for text in ('import * as b from "./b.js";', "export default 1;", 'export { b } from "./b.js";'):
        with pytest.raises(ValueError, match=r"a\.js cannot be joined"):
            joined(modules | {"a.js": text}, "a.js")
    with pytest.raises(ValueError, match="import each other"):
        joined(modules | {"b.js": 'import { a } from "./a.js";\nexport const b = 1;'}, "a.js")
