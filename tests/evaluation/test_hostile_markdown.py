"""Texts of others in report.md: a renderer of Markdown shows them as they are, and nothing in them does anything."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from marl_gem.evaluation.markup import quoted
from marl_gem.printable import printable_line

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ATTACKS = (
    "![x](http://evil/x.png)",
    "[x](javascript:alert(1))",
    "<img src=http://evil/x.png>",
    "<http://evil>",
    "see http://evil and www.evil.com or a@evil.com",
    "a|b\nc | d",
    "`code` ``two``",
    "ends with ` and \\",
    "\\|",
    "|",
    "$\\href{http://evil}{x}$ and \\(x\\)",
    "$`x`$",
    "&lt;img&gt; &#124;",
    "*a* _b_ __c__ ~~d~~ :bomb:",
    "# heading",
    "- [ ] task",
    "@somebody #1",
    "[^1]: note",
    "```mermaid",
    "\x1b]0;x\x07 \u202e \ud800",
)


def inline(tokens: list[Token]) -> list[Token]:
    return [child for token in tokens for child in token.children or []]


@given(st.text(st.sampled_from(list("ab0 `|\\[]()<>!*_~$&#;:@/.-\n\t\x1b\u202e"))) | st.sampled_from(ATTACKS))
@example("a`|``b\\|")
@example("| |")
def test_a_renderer_shows_the_text_and_nothing_else(text: str) -> None:
    shown = " ".join(printable_line(text).split())
    for page in (f"| x | y |\n| --- | --- |\n| {quoted(text)} | end |", f"**Why** for {quoted(text)}: end"):
        tokens = RENDERER.parse(page)
        children = inline(tokens)
        assert {child.type for child in children} <= {
            "text",
            "text_special",
            "code_inline",
            "strong_open",
            "strong_close",
        }
        assert shown in "".join(child.content for child in children), page
        assert sum(token.type == "td_open" for token in tokens) in (0, 2), page
        assert children[-1].content.endswith("end")


@pytest.mark.parametrize("text", ATTACKS)
def test_what_could_be_markup_is_code(text: str) -> None:
    """Also for what this renderer does not know: formulas, emoji, mentions, addresses without < and >."""
    assert quoted(text).startswith(("`", "&#124;")), quoted(text)


@pytest.mark.parametrize("text", ["player_0", "game:KuhnPoker-v0", "illegal action", "Qwen-3 (1.7B), v2", "97.5%", ""])
def test_a_plain_text_stays_plain(text: str) -> None:
    assert quoted(text) == text
