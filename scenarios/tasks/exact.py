r"""Exact numbers in answers: "3/4", "0.75", "1,250", "-2 1/2", "75%", "\frac{3}{4}", "$x = 3$"."""

from __future__ import annotations

import re
from fractions import Fraction

MOST_CHARACTERS = 200
"""A longer text is no number here."""

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_LATEX = re.compile(r"([-+]?)\\[dt]?frac\{?([-+]?\d+)\}?\{?(\d+)\}?")
_PLAIN = re.compile(rf"([-+]?)(?:({_NUMBER})(?:/({_NUMBER}))?|(\d+) (\d+)/(\d+))(\\?%)?")
_AROUND = re.compile(r"\\[,;!]|\\\(|\\\)|\$|\\left|\\right|\\text\{[^}]*\}|\^\\circ|\^\{\\circ\}|°")


def read_number(text: str) -> Fraction | None:
    """The number that a text is, None if it is none."""
    if len(text) > MOST_CHARACTERS or not text.isascii():
        text = text.replace("−", "-").replace("°", "")
        if len(text) > MOST_CHARACTERS or not text.isascii():
            return None
    text = _AROUND.sub("", text).strip().rstrip(".").strip()
    text = re.sub(r"^[A-Za-z]\w{0,2}\s*=\s*", "", text)
    if found := _LATEX.fullmatch(text.replace(" ", "")):
        return _quotient(found[1], found[2], found[3])
    found = _PLAIN.fullmatch(re.sub(r"\s*([-+/%])\s*", r"\1", text))
    if found is None:
        return None
    sign, first, second, units, top, bottom, percent = found.groups()
    if units is not None:
        part = _quotient("", top, bottom)
        value = None if part is None else (int(units) + part) * (-1 if sign == "-" else 1)
    else:
        value = _quotient(sign, first, second or "1")
    return value / 100 if value is not None and percent else value


def _quotient(sign: str, top: str, bottom: str) -> Fraction | None:
    divisor = Fraction(bottom.replace(",", ""))
    if divisor == 0:
        return None
    value = Fraction(top.replace(",", "")) / divisor
    return -value if sign == "-" else value


def write_number(value: Fraction) -> str:
    """A number as `read_number` reads it: "7" or "3/4"."""
    return str(value)
