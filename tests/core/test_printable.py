"""Text of others, made safe to print."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from marl_gem.printable import printable, printable_line

KEPT = "The cat; 猫, кот, قطة, می‌خواهم, क्‍ष; a tab\tand\na line; 👩‍👧 ❤️ [bold] \\ \u00a0\u3000"


def test_a_safe_text_stays_as_it_is() -> None:
    assert printable(KEPT) == KEPT
    assert printable("plain") == "plain" and printable("") == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;cm0gLXJm\x07", "[U+001B]]52;c;cm0gLXJm[U+0007]"),  # writes to the clipboard
        ("\x1b]0;title\x1b\\", "[U+001B]]0;title[U+001B]\\"),
        ("\x9b2J \x9d8;;http://x\x9c", "[U+009B]2J [U+009D]8;;http://x[U+009C]"),  # the same in C1 controls
        ("a\rb\r\nc\x7f\x00", "a[U+000D]b\nc[U+007F][U+0000]"),
        ("\u202eevil\u2066\u200f", "[U+202E]evil[U+2066][U+200F]"),
        ("a\u200bb\u200dc\u2028\ufeff\xad", "a[U+200B]b[U+200D]c[U+2028][U+FEFF][U+00AD]"),
        ("\U000e0041\U000e0100", "[U+E0041][U+E0100]"),  # tags and selectors that carry a hidden text
        ("\ud800 \udfff\udc80", "[U+D800] [U+DFFF][U+DC80]"),
    ],
)
def test_what_acts_or_is_invisible_becomes_its_code_point(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_of_all_characters_only_visible_ones_stay() -> None:
    """Of the format characters only those stay that Unicode calls prepended concatenation marks; they are visible."""
    marks = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    left = set(printable(" ".join(map(chr, range(sys.maxunicode + 1))))) - set("\n\t")
    hidden = {ord(char) for char in left if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert hidden == marks
    "".join(left).encode("utf-8")


def test_a_line_has_no_line_breaks_or_tabs() -> None:
    assert printable_line("a\nb\tc\r\nd\x85e\x0bf") == "a b c d[U+0085]e[U+000B]f"
    assert len(printable_line("\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029").splitlines()) == 1
