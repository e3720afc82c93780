"""Text written by others, made safe to print.

What a model, a server, a scenario, a plug-in or a file name says may hold escape sequences, which a terminal obeys:
they set its title, write to the clipboard, move the cursor over earlier lines. `printable` leaves nothing in a text
that a terminal obeys, that hides other text or that cannot be encoded. Agents always get the unchanged text.
"""

from __future__ import annotations

import re

_JOINED = "\u0600-\u1cff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"
"""Scripts from Arabic to the Indic ones, and emoji: here the joiners U+200C and U+200D are part of the spelling."""

_UNPRINTABLE = re.compile(
    "\r\n"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters (C0 but tab and newline, DEL, C1), with them all sequences
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of the text (Trojan Source, CVE-2021-42574)
    "\xad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible, and other line breaks
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # of hieroglyphs, shorthand and music
    "\U000e0000-\U000e0fff"  # tags and selectors of variants, which can carry a hidden text
    "\ud800-\udfff]"  # lone surrogates, which no encoding can write
    f"|(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])"
)


def printable(text: str) -> str:
    r"""The same text without anything that a terminal obeys, that is invisible or that cannot be encoded.

    Each such character becomes its code point: "\x1b[31m" becomes "[U+001B][31m". Newlines and tabs stay; "\r\n"
    becomes a newline. A text that is safe is returned as it is.
    """
    return text if text.isascii() and text.isprintable() else _UNPRINTABLE.sub(_visible, text)


def printable_line(text: str) -> str:
    """The same in one line: newlines and tabs become spaces."""
    return printable(text).replace("\n", " ").replace("\t", " ")


def _visible(found: re.Match[str]) -> str:
    return "\n" if found[0] == "\r\n" else f"[U+{ord(found[0]):04X}]"
