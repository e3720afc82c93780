"""The page, in a browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marl_gem.policies import ScriptedPolicy
from marl_gem.runs.library import RunLibrary
from marl_gem.tools.calls import write_call
from marl_gem.types import EpisodeError, Response, Role, ToolSpec, Turn, to_json
from marl_gem.viewer.server import Server
from tests.viewer.recorded import (
    HOSTILE,
    Page,
    episode,
    failed,
    games,
    png,
    with_roles,
    write_run,
)


def shown_keys(tab: Any) -> list[str]:
    """The numbers of the rows that are on the page, from the top."""
    rows = "[...document.querySelectorAll('.rows .row')].map((row) => [row.offsetTop, row.firstChild?.textContent])"
    return [key for _, key in sorted(tab.evaluate(rows))]


def test_from_all_runs_to_a_turn(tmp_path: Path, show: Callable[..., Page]) -> None:
    write_run(tmp_path / "first", [episode(n) for n in range(3)], [failed(9)])
    write_run(tmp_path / "second", games("game:KuhnPoker-v0", 5))
    page = show(tmp_path)
    tab = page.go()
    tab.wait_for_selector("text=1 pending")
    assert tab.locator(".runs tbody tr").count() == 2
    tab.click("text=first")
    tab.wait_for_selector(".rows .row >> nth=3")
    assert shown_keys(tab) == ["1", "2", "3", "e1"] and "4 episodes" in tab.inner_text(".filters")
    tab.click(".rows .row >> nth=1")
    tab.wait_for_selector(".turn >> nth=2")
    assert "key=2" in tab.url and tab.title().startswith("talk-1")
    tab.go_back()
    tab.wait_for_selector(".rows .row")


def test_a_row_is_found_by_filters_search_and_order(tmp_path: Path, show: Callable[..., Page]) -> None:
    played = games("game:KuhnPoker-v0", 300)
    page = show(write_run(tmp_path / "run", played))
    tab = page.go("#/run?run=run")
    tab.wait_for_selector("text=300 episodes")
    tab.click("button.chip.loss")
    tab.select_option("select[aria-label=seat]", label="player_0")
    lost = sum(record.returns["player_0"] < 0 for record in played)
    tab.wait_for_selector(f"text={lost} of 300 episodes")
    tab.select_option("select[aria-label=Order]", label="longest")
    tab.fill("input[type=search]", "Your card: K")
    kings = [
        str(number)
        for number, record in enumerate(played, 1)
        if record.returns["player_0"] < 0 and any("card: K" in str(turn.observation) for turn in record.turns)
    ]
    tab.wait_for_selector(f"text={len(kings)} of 300 episodes")
    assert set(shown_keys(tab)) <= set(kings)
    address = tab.url
    for part in ("filter=loss", "seat=player_0", "sort=turns", "text=Your+card"):
        assert part in address
    tab.goto("about:blank")
    tab.goto(address)  # the address alone brings it all back
    tab.wait_for_selector(f"text={len(kings)} of 300 episodes")
    assert tab.input_value("input[type=search]") == "Your card: K"
    assert tab.get_attribute("button.chip.loss", "aria-pressed") == "true"
    tab.fill("input[type=search]", "no such words")
    tab.wait_for_selector("text=No episode fits these filters.")


def test_a_long_list_scrolls_to_its_end(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(n) for n in range(3000)]))
    tab = page.go()
    tab.wait_for_selector("text=3,000 episodes")
    assert tab.locator(".rows .row").count() < 60, "only what can be seen is made"
    page.press("G")
    tab.wait_for_selector(".rows .row.selected >> text=talk-2999")
    page.press("k", "k", "Enter")
    tab.wait_for_selector("text=2,998 of 3,000")
    page.press("u")
    tab.wait_for_selector(".rows .row.selected >> text=talk-2997")


def test_a_page_that_is_left_stops_its_requests_quietly(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(n) for n in range(4)]))
    page.tab.route("**/api/episodes?*", lambda route: None)  # no answer comes
    page.tab.goto(f"{page.server.url}#/run?run=run")
    page.tab.wait_for_selector("main[data-page=run] .table.loading")
    page.tab.evaluate("location.hash = '#/'")
    page.tab.wait_for_selector("main[data-page=run]", state="detached")  # closing the page checks that nothing failed


def test_keys(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(n) for n in range(4)]))
    tab = page.go("#/run?run=run")
    tab.wait_for_selector(".rows .row >> nth=3")
    page.press("j", "j", "k", "j", "Enter")
    tab.wait_for_selector("h1 >> text=talk-1")
    page.press("j", "j")
    assert tab.get_attribute(".turn.selected", "data-number") == "2" and "turn=2" in tab.url
    page.press("a")
    tab.wait_for_selector("button[aria-pressed=true] >> text=user")
    assert tab.locator(".turn").count() == 1
    page.press("J")
    tab.wait_for_selector("h1 >> text=talk-2")
    assert "agent=user" in tab.url, "the view stays"
    for name in ("talk-1", "talk-0"):
        page.press("K")
        tab.wait_for_selector(f"h1 >> text={name}")
    page.press("?")
    tab.wait_for_selector("dialog[open] >> text=next turn")
    page.press("?")
    page.press("u")
    tab.wait_for_selector(".rows .row.selected >> text=talk-0")
    page.press("x", "j", "x")
    tab.wait_for_selector(".pair .pane >> nth=1")
    assert "key=1" in tab.url and "key2=2" in tab.url


def test_a_transcript_of_all_agents_and_of_one(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(0)]))
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_selector(".turn >> nth=2")
    shown = tab.inner_text("main")
    for part in ("It is Sunny.", "weather", "30 + 12 tokens", "asked 3 times", "Thank you, goodbye.", "gpt", "+1"):
        assert part in shown
    folds = tab.locator("details.fold")
    assert folds.count() == 3 and tab.locator("details.fold[open]").count() == 0
    page.press("e")
    assert tab.locator("details.fold[open]").count() == 3 and "I must look it up first." in tab.inner_text("main")
    tab.click("text=tokens >> nth=-1")
    tab.wait_for_selector(".token >> nth=1")
    assert tab.locator(".token").all_inner_texts() == ["7", "8"]
    assert "0.905" in (tab.get_attribute(".token >> nth=0", "title") or "")
    doubts = tab.evaluate(
        "[...document.querySelectorAll('.token')].map((token) => getComputedStyle(token).backgroundColor)"
    )
    assert doubts[0] != doubts[1]
    tab.click(".views button >> text=user")
    tab.wait_for_selector(".views button[aria-pressed=true] >> text=user")
    assert "Sunny" not in tab.inner_text(".turns") and "Thank you" not in tab.inner_text(".turns")
    assert "You want to know" in tab.inner_text(".turns")


def test_roles_are_folded(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [with_roles(0), episode(1)]))
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_selector(".turn >> nth=2")
    beginning = tab.locator("li.role")
    assert beginning.count() == 2 and "role" in beginning.nth(0).inner_text()
    assert tab.locator(".turns > li").nth(0).get_attribute("class").startswith("role")
    assert not tab.is_visible("text=Rule 39") and not tab.is_visible("text=Tells the weather.")
    tab.click("li.role >> nth=1 >> summary >> nth=0")
    assert tab.is_visible("text=Rule 39: be brief.") and not tab.is_visible("text=as on maps")
    tab.click("li.role .fold.tool summary")
    assert tab.is_visible("text=as on maps")
    tab.click(".views button >> text=user")
    tab.wait_for_selector(".views button[aria-pressed=true] >> text=user")
    assert tab.locator("li.role").count() == 1 and "forecaster" not in tab.inner_text("main")
    page.press("e")
    assert tab.is_visible("li.role .text") and tab.inner_text("li.role .text") == "You plan a walk."
    tab = page.go("#/episode?run=run&key=2")
    tab.reload()
    tab.wait_for_selector(".turn >> nth=2")
    assert tab.locator("li.role").count() == 0


def test_pictures_are_shown_if_they_are_data_urls(tmp_path: Path, show: Callable[..., Page]) -> None:
    urls = [
        png(),
        "https://example.com/tracker.png",
        "javascript:window.hacked=1",
        "data:text/html,<script>window.hacked=1</script>",
        "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=",
        "file:///etc/passwd",
    ]
    turns = (Turn("a", [{"type": "image", "url": url} for url in urls], Response("I see.")),)
    page = show(write_run(tmp_path / "run", [episode(0, turns=turns)]))
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_function("document.querySelector('img.picture')?.naturalWidth === 24")
    assert tab.locator("img.picture").count() == 1 and tab.locator(".notloaded").count() == 5
    assert tab.evaluate("[...document.querySelectorAll('.notloaded a')].map((a) => a.href)") == urls[1:2]


def test_a_hostile_run_is_shown_as_text(tmp_path: Path, show: Callable[..., Page]) -> None:
    parts = [{"type": "text", "text": HOSTILE}, {"type": HOSTILE, HOSTILE: HOSTILE}, {"type": "image", "url": HOSTILE}]
    parts += [{"type": "tool_result", "name": HOSTILE, "text": HOSTILE}]
    response = Response(HOSTILE + write_call(HOSTILE, {HOSTILE: HOSTILE}) + "<tool_call>" + HOSTILE, reasoning=HOSTILE)
    turns = (
        Turn(HOSTILE, parts, response, reward=1e308, info={"illegal": HOSTILE, HOSTILE: HOSTILE}),
        Turn(HOSTILE, "x" * 1_000_000, Response("\n" * 100_000 + "\u0301" * 100_000), reward=-1e308),
    )
    hostile = episode(
        0,
        id=HOSTILE,
        scenario=HOSTILE,
        seed=2**80,
        turns=turns,
        models={HOSTILE: HOSTILE},
        returns={HOSTILE: 1e308},
        ending="error",
        error=EpisodeError("env", HOSTILE, HOSTILE, HOSTILE),
        limit=HOSTILE,
        final_infos={HOSTILE: {"final_observation": HOSTILE, HOSTILE: HOSTILE}},
        options={HOSTILE: HOSTILE},
        roles={HOSTILE: Role(HOSTILE, (ToolSpec(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),))},
    )
    failure = msgspec.structs.replace(hostile, id="")
    folder = write_run(tmp_path / "<b>&\"'", [hostile, hostile], [failure], scenario=HOSTILE)
    with (folder / "episodes.jsonl").open("a") as file:
        file.write(f"{HOSTILE.encode('utf-8', 'replace').decode()}\n")
    write_run(tmp_path / "other", [episode(0)])
    page = show(tmp_path)
    for name, ready in [
        ("#/", "text=1 pending"),
        ("#/run?run=%3Cb%3E%26%22%27", "text=4 episodes"),
        ("#/episode?run=%3Cb%3E%26%22%27&key=1", ".turn >> nth=1"),
        ("#/episode?run=%3Cb%3E%26%22%27&key=e1", ".turn >> nth=1"),
        ("#/episode?run=%3Cb%3E%26%22%27&key=3", "pre.raw"),
        ("#/compare?run=%3Cb%3E%26%22%27&key=1&run2=other&key2=1", ".pane >> nth=1"),
        (
            "#/episode?run=<script>window.hacked=1</script>&key=<img src=x onerror=window.hacked=1>",
            "text=cannot be shown",
        ),
    ]:
        tab = page.go(name)
        tab.reload()
        tab.wait_for_selector(ready)
        if name.endswith("&key=1"):
            page.press("e")  # a megabyte is unfolded, too
        assert tab.evaluate("window.hacked") is None
        assert (
            tab.evaluate("document.querySelectorAll('main script, main style, main iframe, main [onerror]').length")
            == 0
        )
        assert tab.is_visible("main") and tab.evaluate("document.scripts.length") == 1
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than its window"
    page.errors[:] = [line for line in page.errors if "404" not in line]  # of the run that there is not


def test_broken_lines_and_new_episodes(tmp_path: Path, show: Callable[..., Page]) -> None:
    folder = write_run(tmp_path / "run", [episode(0)])
    with (folder / "episodes.jsonl").open("a") as file:
        file.write("<html>502</html>\n" + to_json(episode(1))[:100])
    page = show(folder)
    tab = page.go("#/run?run=run")
    tab.wait_for_selector("text=is not finished")
    assert shown_keys(tab) == ["1", "2", "3"] and "2" in tab.inner_text(".tiles .negative")
    tab.click(".row.broken >> nth=0")
    tab.wait_for_selector("pre.raw >> text=<html>502</html>")
    (folder / "episodes.jsonl").write_text("".join(f"{to_json(episode(n))}\n" for n in range(7)))
    page.press("u")
    tab.wait_for_selector("text=7 episodes")
    with (folder / "episodes.jsonl").open("a") as file:
        file.write(to_json(episode(7)) + "\n")
    tab.wait_for_selector("text=8 episodes")  # the list goes on by itself


def test_two_episodes_side_by_side(tmp_path: Path, show: Callable[..., Page]) -> None:
    other = episode(0, turns=(*episode().turns[:2], Turn("assistant", "?", Response("It rains."))))
    write_run(tmp_path / "a", [episode(0), episode(1)])
    write_run(tmp_path / "b", [episode(1), other])
    page = show(tmp_path)
    tab = page.go("#/episode?run=a&key=1")
    tab.wait_for_selector(".turn")
    page.press("c")
    tab.wait_for_selector(".side >> nth=1")
    tab.select_option(".side >> nth=1 >> select", label="b")
    tab.wait_for_selector("text=It rains.")  # the same task, found in the other run
    assert "run2=b" in tab.url and "key2=2" in tab.url
    assert tab.locator(".difference").count() == 2 and tab.inner_text(".turn[data-number='3'] .difference >> nth=0")
    page.press("j", "j")
    assert [record.get_attribute("data-number") for record in tab.locator(".turn.selected").all()] == ["2", "2"]
    page.press("a")
    tab.wait_for_selector(".side >> nth=1 >> .views button[aria-pressed=true] >> text=user")
    tab.click("[aria-label='Next episode'] >> nth=0")
    tab.wait_for_selector("h1 >> text=talk-1")


def test_the_page_shows_what_is_recorded(tmp_path: Path, show: Callable[..., Page]) -> None:
    """Every turn of real games, with its reward; the chart has a line for each player."""
    played = games("game:KuhnPoker-v0", 3, ScriptedPolicy(lambda observation, info: "[check]"))
    page = show(write_run(tmp_path / "run", played))
    for key, record in enumerate(played, 1):
        tab = page.go(f"#/episode?run=run&key={key}")
        tab.reload()
        tab.wait_for_selector(".turn >> nth=1")
        cards = tab.locator(".turn").all()
        assert len(cards) == len(record.turns)
        for card, turn in zip(cards, record.turns, strict=True):
            shown = card.inner_text()
            assert turn.agent in shown and str(turn.observation) in shown and turn.response.text in shown
            assert (f"{'+' if turn.reward > 0 else '−'}{abs(turn.reward):g}" in shown) == bool(turn.reward)
        assert tab.locator(".chart g.line").count() == 2
        assert all(
            str(value) in tab.inner_text(".seatlist").replace("−", "-") for value in map(int, record.returns.values())
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(tmp_path: Path, show: Callable[..., Page], scheme: str) -> None:
    page = show(write_run(tmp_path / "run", [episode(0)]), color_scheme=scheme)
    tab = page.go("#/episode?run=run&key=1")
    tab.wait_for_selector(".turn")

    def brightness() -> float:
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(",")) / 765

    assert (brightness() > 0.5) == (scheme == "light")
    page.press("t")
    assert tab.inner_text("#theme") == "Light" and brightness() > 0.5
    page.press("t")
    assert tab.inner_text("#theme") == "Dark" and brightness() < 0.5
    tab.reload()
    tab.wait_for_selector(".turn")
    assert brightness() < 0.5, "it is remembered"


def test_a_narrow_window(tmp_path: Path, show: Callable[..., Page]) -> None:
    wide = episode(0, id="a" * 300, turns=(Turn("a", "b" * 5000, Response("|".join("c" * 900))),))
    write_run(tmp_path / "one", [episode(0), wide])
    write_run(tmp_path / "two", [episode(0)])
    page = show(tmp_path, viewport={"width": 380, "height": 700})
    for address in ("", "#/run?run=one", "#/episode?run=one&key=2", "#/compare?run=one&key=1&run2=one&key2=2"):
        tab = page.go(address)
        tab.reload()
        tab.wait_for_selector(".runs td, .rows .row, .turn")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 380, address


def test_the_page_says_that_the_server_is_gone(tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(RunLibrary(write_run(tmp_path / "run", [episode(n) for n in range(3)])), 0)
    threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
    page = Page(browser, server)
    tab = page.go("#/run?run=run")
    tab.wait_for_selector(".rows .row")
    server.shutdown()
    server.server_close()
    tab.route("**", lambda route: route.abort())  # what a connection that is still open would answer
    tab.click(".rows .row >> nth=0")
    tab.wait_for_selector("text=marl-gem view")
    tab.close()


def test_the_browser_is_led_to_the_page_by_a_file_of_this_user(tmp_path: Path, browser: Any) -> None:
    """The command line of a browser, which other users can see, does not hold the token."""
    script, opened = tmp_path / "browser.sh", tmp_path / "opened"
    script.write_text(f'#!/bin/sh\necho "$@" > {opened}.draft\nmv {opened}.draft {opened}\n')
    script.chmod(0o700)
    command = [sys.executable, "-m", "marl_gem.cli", "view", str(write_run(tmp_path / "run", [episode()]))]
    environment = os.environ | {"BROWSER": str(script), "DISPLAY": ":0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        url = next(word for word in process.stdout.readline().split() if word.startswith("http://127.0.0.1:"))
        token = url.split("/")[3]
        wait_for(opened.exists)
        address = opened.read_text().strip()
        file = Path(address.removeprefix("file://"))
        assert token not in address and token in file.read_text() and file.parent.stat().st_mode & 0o077 == 0
        tab = browser.new_page()
        tab.goto(address)
        tab.wait_for_selector(".rows .row")
        assert tab.url.startswith(url) and tab.evaluate("document.referrer") == ""
        tab.close()
        process.send_signal(signal.SIGINT)
    assert not file.exists()


def test_an_agent_may_be_called_like_anything_of_javascript(tmp_path: Path, show: Callable[..., Page]) -> None:
    names = ("constructor", "__proto__", "toString", "hasOwnProperty")
    episodes = [
        episode(n, turns=(Turn(name, "?", Response(name)),), returns={name: 1.0}, models={name: name})
        for n, name in enumerate(names)
    ]
    episodes += [episode(9, turns=(), returns={}, models={})]
    page = show(write_run(tmp_path / "run", episodes))
    tab = page.go("#/run?run=run")
    tab.wait_for_selector(".rows .row >> nth=4")
    assert "native code" not in tab.inner_text("main")
    for key, name in enumerate((*names, ""), 1):
        tab.goto(f"{page.server.url}#/episode?run=run&key={key}&agent={name}")
        tab.wait_for_selector(f"h1 >> text=talk-{key - 1 if name else 9}")
        assert name in tab.inner_text(".facts") and "native code" not in tab.inner_text("main")
    tab.goto(f"{page.server.url}#/constructor?x=1")
    tab.wait_for_selector(".rows .row >> nth=4")


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; at most 20 seconds."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
