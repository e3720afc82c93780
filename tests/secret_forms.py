"""A key with every kind of character, and the forms in which a server may give it back."""

from __future__ import annotations

import base64
import html
import json
import re
import secrets
import urllib.parse

ASCII_SPECIALS = "\"quo'te\\back\\\\slash/solidus+plus%25percent space<angle>&amp;`~^{}[]|=?#$@!*(),;:."
SPECIALS = ASCII_SPECIALS + "ü€\U0001f600"


def new_key(specials: str = SPECIALS) -> str:
    """A fresh key: random digits, these characters, random digits."""
    return f"sk-canary-{secrets.token_hex(12)}{specials}{secrets.token_hex(12)}"


def _each(key: str, form: str) -> str:
    """Every character by its number; those beyond 16 bits as JSON has them."""
    return "".join(form.format(ord(letter)) if ord(letter) < 0x10000 else json.dumps(letter)[1:-1] for letter in key)


def forms(key: str) -> dict[str, str]:
    """The key in the forms that are redacted, by what they are."""
    body, quoted = json.dumps(key)[1:-1], urllib.parse.quote(key, safe="")
    found = {
        "plain": key,
        "JSON": body,
        "JSON in JSON": json.dumps(body)[1:-1],
        "JSON in JSON in JSON": json.dumps(json.dumps(body)[1:-1])[1:-1],
        "JSON in UTF-8": json.dumps(key, ensure_ascii=False)[1:-1],
        "JSON with escaped solidus": body.replace("/", "\\/"),
        "all in \\u": _each(key, "\\u{:04x}"),
        "all in \\U": _each(key, "\\u{:04X}"),
        "Python": repr(key)[1:-1],
        "Python in ASCII": ascii(key)[1:-1],
        "unicode_escape": key.encode("unicode_escape").decode(),
        "percent": quoted,
        "percent in small letters": re.sub("%..", lambda found: found[0].lower(), quoted),
        "percent twice": urllib.parse.quote(quoted, safe=""),
        "percent for all": "".join(f"%{byte:02X}" for byte in key.encode()),
        "percent but /": urllib.parse.quote(key),
        "plus": urllib.parse.quote_plus(key),
        "percent in JSON": json.dumps(urllib.parse.quote(key))[1:-1],
        "decoded": urllib.parse.unquote(key),
        "decoded from a form": urllib.parse.unquote_plus(key),
        "HTML": html.escape(key),
        "HTML twice": html.escape(html.escape(key)),
        "HTML in JSON": json.dumps(html.escape(key))[1:-1],
        "all in decimal entities": "".join(f"&#{ord(letter)};" for letter in key),
        "all in hexadecimal entities": "".join(f"&#x{ord(letter):X};" for letter in key),
        "XML in ASCII": key.encode("ascii", "xmlcharrefreplace").decode(),
        "hexadecimal": key.encode().hex(),
        "hexadecimal in capitals": key.encode().hex().upper(),
        "as Latin-1": key.encode().decode("latin-1"),
        "as Latin-1 in JSON": json.dumps(key.encode().decode("latin-1"))[1:-1],
    }
    for offset in range(3):
        packed = b"x" * offset + key.encode()
        found |= {
            f"base64 at {offset}": base64.b64encode(packed).decode(),
            f"base64 for URLs at {offset}": base64.urlsafe_b64encode(packed + b"tail").decode(),
            f"base64 in JSON at {offset}": base64.b64encode(packed).decode().replace("/", "\\/"),
            f"base64 in a URL at {offset}": urllib.parse.quote(base64.b64encode(packed).decode(), safe=""),
        }
    return found


def traces(text: str | bytes, key: str) -> list[str]:
    """The forms of a key, or of its random ends, that stand in a text."""
    body = (text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")).lower()
    found = [name for name, form in forms(key).items() if form.encode("utf-8", "surrogatepass").lower() in body]
    for end in (key[-24:], key[10:34]):
        pieces = {name: form for name, form in forms(end).items() if not name.startswith("base64")}
        packed = {f"base64 {at}": base64.b64encode(b"x" * at + end.encode()).decode()[4:28] for at in range(3)}
        found += [f"{name} of an end" for name, form in (pieces | packed).items() if form.encode().lower() in body]
    return found
