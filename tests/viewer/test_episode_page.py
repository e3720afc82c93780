"""The page of an episode, in a browser: why it failed, messages, rounds, calls, markdown, copies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marl_gem.tools.calls import write_call
from marl_gem.types import Response, Turn, to_json
from tests.viewer.cases import MARKDOWN, failed_run, languages_run, village
from tests.viewer.recorded import HOSTILE, Page, episode, png, with_roles, write_run

pytestmark = pytest.mark.browser


def opened(page: Page, run: str, key: int = 1, **more: Any) -> Any:
    extra = "".join(f"&{name}={value}" for name, value in more.items())
    tab = page.go(f"#/episode?run={run}&key={key}{extra}")
    tab.wait_for_selector(".turns[data-complete]")
    return tab


def test_why_it_failed_is_at_the_top_and_leads_to_the_turn(tmp_path: Path, show: Callable[..., Page]) -> None:
    tab = opened(show(failed_run(tmp_path / "run")), "run")
    why = tab.inner_text(".whybox")
    for part in ("Failed", "user", "data", "differences: orders #W7", "missing outputs: 154", "Illegal move", "turn 2"):
        assert part in why
    tops = tab.evaluate(
        "['.whybox', '.facts', '.turns'].map((name) => document.querySelector(name).getBoundingClientRect().top)"
    )
    assert tops[0] == min(tops)
    tab.click(".whybox button")
    tab.wait_for_selector(".turn.selected[data-number='2']")
    assert "turn=2" in tab.url


def test_an_error_is_shown_in_full_and_a_success_has_no_box(tmp_path: Path, show: Callable[..., Page]) -> None:
    solved = episode(5, returns={"assistant": 1.0}, models={"assistant": "qwen"}, turns=episode().turns[1:])
    write_run(tmp_path / "solved", [solved])
    failed_run(tmp_path / "failed")
    page = show(tmp_path)
    assert "the scenario raised KeyError: 'order' in step 3" in opened(page, "failed", 2).inner_text(".whybox pre")
    tab = opened(page, "solved")
    tab.wait_for_selector("h1 >> text=talk-5")
    assert tab.locator(".whybox").count() == 0


def test_a_message_is_shown_once_with_those_who_heard_it(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [episode(0)]))
    tab = opened(page, "run")
    message = "How is the weather? (0)"
    assert tab.locator(f".text:visible >> text={message}").count() == 1
    assert "heard by assistant" in tab.inner_text(".turn[data-number='1']")
    tab.click(".turn[data-number='2'] .ref")
    tab.wait_for_selector(".turn.selected[data-number='1']")
    tab = opened(page, "run", agent="assistant")
    tab.reload()
    tab.wait_for_selector(".turns.single-agent .message")
    assert message in tab.inner_text(".turns"), "an agent's view shows what it observed"


def test_a_call_has_its_arguments_and_its_answer(tmp_path: Path, show: Callable[..., Page]) -> None:
    tab = opened(show(failed_run(tmp_path / "run")), "run")
    call = tab.locator(".turn[data-number='2'] .fold.call")
    assert "unknown argument items" in call.inner_text(), "a preview"
    call.locator("summary").click()
    names = call.locator("dl.arguments dt").all_inner_texts()
    assert names == ["order", "reason", "items"] and "no longer needed" in call.locator("dl.arguments").inner_text()
    assert '"code": 4' in call.inner_text()
    assert "turn 2" in tab.inner_text(".turn[data-number='3'] .observation")
    assert "unknown argument" not in tab.inner_text(".turn[data-number='3']")


def test_numbers_that_javascript_would_change_are_shown_as_they_are(tmp_path: Path, show: Callable[..., Page]) -> None:
    answer = '{"price": 1.0, "id": 12345678901234567890}'
    turns = (
        Turn("a", "?", Response(write_call("f", {"id": 12345678901234567890, "share": 1.0}))),
        Turn("a", [{"type": "tool_result", "name": "f", "text": answer}], Response("x")),
    )
    page = show(write_run(tmp_path / "run", [episode(0, turns=turns)]))
    tab = opened(page, "run")
    page.press("e")
    shown = tab.inner_text(".fold.call")
    assert shown.count("12345678901234567890") == 2 and "1.0" in shown and answer in shown


def test_turns_at_the_same_time_stand_side_by_side(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [village(agents=3)]), viewport={"width": 1400, "height": 900})
    tab = opened(page, "run")
    top = "(turn) => turn.getBoundingClientRect().top"
    boxes = f"[...document.querySelectorAll('.round')].map((e) => [...e.querySelectorAll('.turn')].map({top}))"
    assert [len(set(tops)) for tops in tab.evaluate(boxes)] == [1, 1]
    assert tab.locator(".round >> nth=0 >> .turn").count() == 3
    tab.set_viewport_size({"width": 390, "height": 800})
    assert [len(set(tops)) for tops in tab.evaluate(boxes)] == [3, 3], "on a phone below each other"


def test_fifty_agents_are_folded_by_team(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(write_run(tmp_path / "run", [village()]))
    tab = opened(page, "run")
    assert tab.locator(".seatlist > li").count() == 2 and not tab.is_visible("text=villager_1 >> nth=0")
    assert tab.locator(".turn:visible").count() == 0 and tab.locator("li.role").count() == 1
    page.press("j")
    tab.wait_for_selector(".turn.selected:visible")
    page.press("e")
    assert tab.locator(".turn:visible").count() == 100 and tab.is_visible(".seatlist .agent >> text=villager_49")
    tab.select_option(".views select", label="villager_7")
    tab.wait_for_selector(".turns.single-agent")
    assert tab.locator(".turn").count() == 2 and "I am villager_7" in tab.inner_text(".turns")


def test_unfold_all_unfolds_all_and_folds_again(tmp_path: Path, show: Callable[..., Page]) -> None:
    long = "\n".join(f"line {number}" for number in range(1000))
    turns = (*with_roles().turns, Turn("user", [{"type": "tool_result", "name": "t", "text": long}], Response(long)))
    page = show(write_run(tmp_path / "run", [with_roles(0, turns=turns)]))
    tab = opened(page, "run")
    assert "line 999" not in tab.inner_text("main")
    tab.click("text=Unfold all")
    assert tab.locator("button.more").count() == 0 and tab.locator("main details:not([open])").count() == 0
    assert tab.text_content(".turns").count("line 999") == 2
    tab.click("text=Unfold all")
    assert tab.locator("main details[open]").count() == 0


def test_the_heading_stays_in_sight(tmp_path: Path, show: Callable[..., Page]) -> None:
    turns = episode().turns * 30
    page = show(write_run(tmp_path / "run", [episode(0, turns=turns)]), viewport={"width": 390, "height": 700})
    tab = opened(page, "run", turn=80)
    tab.wait_for_selector(".turn.selected[data-number='80']")
    heading, card = (tab.locator(name).bounding_box() for name in (".episode-title", ".turn.selected"))
    assert 0 <= heading["y"] < 100 and card["y"] >= heading["y"] + heading["height"] - 1, "and covers no turn"
    assert "talk-0" in tab.inner_text("h1")


def test_markdown_is_rendered_or_shown_as_it_is_written(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(languages_run(tmp_path / "run"))
    tab = opened(page, "run")
    text = ".turn[data-number='3'] .response .text"
    assert tab.locator(f"{text} table td").all_inner_texts() == ["lamp", "12.50", "椅子", "80"]
    assert tab.inner_text(f"{text} b >> nth=0") == "Ask" and tab.inner_text(f"{text} pre") == 'print("refund")'
    assert tab.get_attribute(f"{text} a", "href") == "https://example.com/rules"
    assert tab.get_attribute(f"{text} img", "src") == png()
    page.press("m")
    tab.wait_for_selector(f"{text}:not(.markdown)")
    assert tab.inner_text(text) == MARKDOWN
    page.press("m")
    tab.wait_for_selector(f"{text}.markdown")


MARKUP = [
    HOSTILE,
    f"# {HOSTILE}\n\n- {HOSTILE}\n\n> {HOSTILE}\n\n| a |\n|--|\n| {HOSTILE} |",
    f"```html\n{HOSTILE}\n```\n**{HOSTILE}**",
    "[x](javascript:window.hacked=1) [x](data:text/html,<script>window.hacked=1</script>) ![x](https://example.com/x.png)",
    '![x](data:image/svg+xml;base64,PHN2Zy8+) [x](https://example.com/"onmouseover=window.hacked=1) `<b>`',
    "![" * 2_000,
    "`" * 5_000 + "*" * 5_000 + "|" * 5_000 + "\n" + "|-" * 2_000,
    "**a " * 2_000 + "\n> " * 2_000,
]


def test_no_markup_of_a_model_becomes_an_element(tmp_path: Path, show: Callable[..., Page]) -> None:
    turns = tuple(Turn("a", text, Response(text)) for text in MARKUP)
    page = show(write_run(tmp_path / "run", [episode(0, turns=turns)]))
    tab = opened(page, "run")
    page.press("e")
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("main script, main style, main iframe, main [onerror], main .turns svg").count() == 0
    addresses = tab.evaluate("[...document.querySelectorAll('.turn .text a')].map((a) => a.href)")
    assert addresses and all(address.startswith("https://example.com/") for address in addresses)
    assert tab.locator(".turn img").count() == 0
    assert "<script>window.hacked=1</script>" in tab.inner_text(".turn >> nth=0")


def test_each_paragraph_has_its_own_direction(tmp_path: Path, show: Callable[..., Page]) -> None:
    tab = opened(show(languages_run(tmp_path / "run")), "run")
    sides = tab.evaluate(
        """() => {
          const node = document.querySelector(".turn[data-number='1'] .response .text");
          const box = node.getBoundingClientRect();
          const range = document.createRange();
          range.selectNodeContents(node);
          const boxes = [...range.getClientRects()];
          const first = boxes.filter((line) => line.top < boxes[0].top + 5);
          const last = boxes.filter((line) => line.top > boxes.at(-1).top - 5);
          return [first, last].map((lines) => [
            Math.min(...lines.map((line) => line.left)) - box.left,
            box.right - Math.max(...lines.map((line) => line.right)),
          ]);
        }"""
    )
    arabic, chinese = sides
    assert arabic[1] < 2 < arabic[0] and chinese[0] < 2 < chinese[1]


def test_an_episode_is_copied_downloaded_and_linked(tmp_path: Path, show: Callable[..., Page]) -> None:
    record = episode(0, seed=2**70)
    page = show(write_run(tmp_path / "run", [record]))
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = opened(page, "run")
    tab.click(".tools >> text=Copy")
    tab.wait_for_function("navigator.clipboard.readText().then((text) => text.startsWith('Episode talk-0'))")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert (
        "Episode talk-0" in copied and "3 assistant" in copied and "-> weather" in copied and "It is Sunny." in copied
    )
    tab.click(".turn[data-number='3'] >> text=copy")
    tab.wait_for_function("navigator.clipboard.readText().then((text) => text.startsWith('3 assistant'))")
    with tab.expect_download() as download:
        tab.click("text=Download")
    assert json.loads(Path(download.value.path()).read_text()) == json.loads(to_json(record))
    assert download.value.suggested_filename == "run-talk-0.json"
    address = tab.get_attribute(".turn[data-number='3'] .turn-number", "href")
    tab.goto("about:blank")
    tab.goto(f"{page.server.url}{address}")
    tab.wait_for_selector(".turn.selected[data-number='3']")
