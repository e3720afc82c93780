"""Secrets: which names are those of secrets, and texts without them.

A server may give back the key that it was sent, in an error or in an answer, and seldom as it was: in JSON, in a URL,
in HTML, in base64, or in several of these at once. `redact` finds a secret in all of these forms:

    as it is                  also where its bytes were read as Latin-1, or its % and + were decoded
    JSON, Python, shell       \\" \\\\ \\/ \\u0022 \\x22 \\U0001f600, escaped any number of times
    URL                       %22 and + for a space, quoted any number of times
    HTML                      &quot; &#34; &#x22;, escaped any number of times
    base64, hexadecimal       both alphabets of base64, at any position within a longer text

Out of scope: a secret in parts, in another case, encrypted, or compressed.

A secret of fewer than `SHORTEST` characters may be any word ("EMPTY", "none"). In answers it stays, since replacing
words would change what a model said; in messages it is replaced where it stands as a word of 4 characters or more.
"""

from __future__ import annotations

import base64
import functools
import html.entities
import json
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

MASK = "[secret]"
SHORTEST = 8
"""The fewest characters of a secret that is redacted wherever it stands."""

_NAMES = re.compile(r"key|token|secret|passw|pwd|sig|code|auth|cred|bearer|jwt|session", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a parameter of this name holds a secret, as in `?api_key=`, `?access_token=` or `?auth=`."""
    return bool(_NAMES.search(name))


def url_secrets(url: str) -> list[str]:
    """The secrets in a URL: its password (its user where there is none), and the values of parameters with such names.

    Raises:
        ValueError: it is no URL.
    """
    parts = urllib.parse.urlsplit(url)
    user, password = (urllib.parse.unquote(text or "") for text in (parts.username, parts.password))
    parameters = [
        *urllib.parse.parse_qsl(parts.query, keep_blank_values=True),
        *urllib.parse.parse_qsl(parts.fragment, keep_blank_values=True),
    ]
    found = [value for name, value in parameters if is_secret_name(name)]
    return [password or user, *found] if "@" in parts.netloc else found


def hide_in_urls(text: str) -> str:
    """A text for messages without the users, passwords and secret parameters of the URLs in it, valid or not."""
    text = re.sub(r"(:/+)[^/?#\s]*@", rf"\1{MASK}@", text)
    return re.sub(
        r"([?&#;]([^=&#;\s]*)=)[^&#\s]*",
        lambda found: f"{found[1]}{MASK}" if is_secret_name(found[2]) else found[0],
        text,
    )


def redact(text: str, secrets: Sequence[str]) -> str:
    """A text without these secrets, in whatever form they stand in it; those that are too short stay."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            text = _forms(secret).replace(text)
    return text


def redact_message(text: str, secrets: Sequence[str]) -> str:
    """As `redact`, for texts that are only shown: short secrets that stand as words are replaced, too."""
    for secret in secrets:
        if 4 <= len(secret) < SHORTEST:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", lambda _: MASK, text)
    return redact(text, secrets)


def redact_value(value: Any, secrets: Sequence[str]) -> Any:
    """A structure of dicts, lists and texts without these secrets."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {redact_value(name, secrets): redact_value(part, secrets) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_value(part, secrets) for part in value]
    return value


def redact_body(body: bytes, secrets: Sequence[str]) -> bytes:
    """The body of a reply without these secrets; JSON stays JSON."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return redact(body.decode("utf-8", "surrogateescape"), secrets).encode("utf-8", "surrogateescape")
    if redact(text, secrets) == text:
        return body
    with suppress(ValueError, RecursionError):
        text = json.dumps(redact_value(json.loads(text), secrets))
    return redact(text, secrets).encode("utf-8")


class _Forms:
    """Finds one secret in all its forms."""

    def __init__(self, secret: str) -> None:
        decoded = {secret, _latin(secret), urllib.parse.unquote(secret), urllib.parse.unquote_plus(secret)}
        variants = sorted((text for text in decoded if len(text) >= SHORTEST), key=len, reverse=True)
        cores, digits = list(_base64_cores(_bytes(secret))), _bytes(secret).hex()
        # Most texts hold no sign of an escape; then plain texts are searched for, which is much faster than patterns.
        ordinary = re.fullmatch(r"[\w.-]+", secret, re.ASCII)  # a backslash before these is no escape, but of \u and \x
        self._signs = ("\\u", "\\U", "\\x", "%", "&") if ordinary else ("\\", "%", "&")
        self._always_escaped = " " in secret
        self._plain = [*variants, *cores, digits, digits.upper()]
        self._plain += [core.replace("+", "-").replace("/", "_") for core in cores]
        self._packed = [re.compile("".join(map(_packed_unit, core)) + "[A-Za-z0-9+/_-]{0,3}={0,2}") for core in cores]
        self._packed += [re.compile(digits), re.compile(digits.upper())]
        self._variants = [(_start(text), re.compile("".join(_units(text)))) for text in variants]

    def replace(self, text: str) -> str:
        escaped = self._always_escaped or any(sign in text for sign in self._signs)
        if not escaped and not any(form in text for form in self._plain):
            return text
        for pattern in self._packed:
            text = pattern.sub(MASK, text)
        for start, pattern in self._variants:
            text = _replace(text, start, pattern)
        return text


def _replace(text: str, start: re.Pattern[str], pattern: re.Pattern[str]) -> str:
    """`pattern.sub(MASK, text)`, tried only where `start` matches, which is much faster."""
    parts, end = list[str](), 0
    for candidate in start.finditer(text):
        if candidate.start() >= end and (found := pattern.match(text, candidate.start())):
            parts += [text[end : found.start()], MASK]
            end = found.end()
    return "".join([*parts, text[end:]]) if parts else text


def _start(secret: str) -> re.Pattern[str]:
    """Where a secret may begin: its first character before its second, or an escape."""
    first, second = (re.escape(letter) for letter in [*secret[0], *secret[1]])
    spaces = r"\s+" if secret[1].isspace() else ""
    if "\\" in (secret[0], secret[1]):
        return re.compile(rf"[{first}\\%&]")
    return re.compile(rf"{first}(?=[{second}{spaces}\\%&])|\\(?=[\\uUx{first}])|%(?=[0-9a-fA-F])|&(?=[#a-zA-Z])")


_forms = functools.lru_cache(maxsize=256)(_Forms)


def _latin(text: str) -> str:
    """What a server reads that takes the bytes of a header for Latin-1."""
    return _bytes(text).decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64_cores(secret: bytes) -> Iterator[str]:
    """What stands in the base64 of any text that holds the secret: it depends on the position modulo 3."""
    for offset in range(3):
        coded = base64.b64encode(bytes(offset) + secret).decode().rstrip("=")
        start = (offset * 8 + 5) // 6
        end = (offset + len(secret)) * 8 // 6
        yield coded[start:end]


# The repetitions are bounded, and those of backslashes possessive, so that no text takes long to search.
_ESCAPES, _AGAIN = r"\\{1,64}+", "(?:25){0,8}"


def _packed_unit(letter: str) -> str:
    """A pattern for a character of base64, whose / may be escaped and whose + and / may be quoted."""
    if letter not in "+/":
        return letter
    if letter == "+":
        return rf"(?:[+-]|%{_AGAIN}2[bBdD]|{_ESCAPES}u002[bBdD])"
    return rf"(?:[/_]|{_ESCAPES}(?:/|u002[fF])|%{_AGAIN}2[fF]|%{_AGAIN}5[fF])"


def _units(secret: str) -> Iterator[str]:
    """A pattern for each character of a secret in all its forms, and for each run of backslashes or of spaces."""
    escapes = _ESCAPES
    for run in re.findall(r"\\+|\s+|.", secret, re.DOTALL):  # how long a run is is hard to tell in an escaped text
        if run[0] == "\\":
            yield rf"(?:{_ESCAPES}(?:u005[cC]|x5[cC])?|{_quoted(run[0])}|{_entity(run[0])}){{1,64}}+"
            escapes = _ESCAPES.replace("1", "0", 1)  # the backslash of the next character may have been taken for this
            continue
        if run.isspace():
            codes = "|".join((*_codes(" "), "u0009", "x09", "[nt]"))
            yield rf"(?:[\s+]|{escapes}(?:{codes})|{_quoted(' ')}|{_entity(' ')}){{1,64}}"
        else:
            behind = [*_codes(run), *([] if run.isalnum() else [re.escape(run)])]
            yield rf"(?:{re.escape(run)}|{escapes}(?:{'|'.join(behind)})|{_quoted(run)}|{_entity(run)})"
        escapes = _ESCAPES


def _codes(letter: str) -> list[str]:
    """What follows the backslash where a character is escaped by its number."""
    number = ord(letter)
    forms = [rf"u\{{0{{0,8}}{_digits(f'{number:x}')}\}}", rf"U{_digits(f'{number:08x}')}"]
    if number < 0x100:
        forms.append(f"x{_digits(f'{number:02x}')}")
    if number < 0x10000:
        return [*forms, f"u{_digits(f'{number:04x}')}"]
    pair = letter.encode("utf-16-be").hex()
    return [*forms, rf"u{_digits(pair[:4])}{_ESCAPES}u{_digits(pair[4:])}"]


def _quoted(letter: str) -> str:
    """A pattern for a character that is quoted for URLs."""
    return "".join(f"%{_AGAIN}{_digits(f'{byte:02x}')}" for byte in _bytes(letter))


def _entity(letter: str) -> str:
    """A pattern for a character of HTML."""
    names = [re.escape(name) for name in _entities().get(letter, ())]
    numbers = [rf"#0{{0,8}}{ord(letter)};", rf"#[xX]0{{0,8}}{_digits(f'{ord(letter):x}')};"]
    return rf"&(?:amp;){{0,8}}(?:{'|'.join(numbers + names)})"


def _digits(hexadecimal: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in hexadecimal)


@functools.cache
def _entities() -> dict[str, list[str]]:
    """The names of HTML's entities by what they stand for."""
    names: dict[str, list[str]] = {}
    for name, letter in html.entities.html5.items():
        if name.endswith(";"):
            names.setdefault(letter, []).append(name)
    return names
