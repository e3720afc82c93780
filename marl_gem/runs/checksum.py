"""A checksum for a JSON object: its last field, `"crc32"`, of all bytes before the field and its comma.

    {"id":"0.0", ..., "zero_sum":true,"crc32":"0f1e2d3c"}

The object stays plain JSON. CRC-32 (ISO 3309, `zlib.crc32`) finds every damage of up to 32 bits in a row, and any
other but with a chance of 1 in 2^32. It protects against faulty disks and edits by mistake, not against forgery.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

FIELD = "crc32"

_FORMS = ((b',"crc', b'32":"', b'"}'), (b',\n  "crc', b'32": "', b'"\n}'))
"""What stands before and after the eight digits: of an object on one line, and of an indented one."""


def with_checksum(text: bytes) -> bytes:
    """A JSON object, which is not empty, with its checksum as the last field.

    It stays on one line if it was; else it should be indented by two spaces.
    """
    body = text.rstrip()[:-1].rstrip()
    key, colon, after = _FORMS[b"\n" in body]
    return b"%b%b%b%08x%b" % (body, key, colon, crc32(body), after)


def verify(text: bytes) -> bool:
    """Compare a JSON object with its checksum. White space after the object does not count.

    Returns:
        whether it has one. Records of older versions have none.

    Raises:
        ValueError: they do not fit, or the checksum is damaged: the text was changed after it was written.
    """
    text = text.rstrip(b" \t\r\n")
    for key, colon, after in _FORMS:
        size = len(key) + len(colon) + 8 + len(after)
        field = text[-size:]
        if not (field.startswith(key) or field.startswith(colon, len(key))):  # a damaged field has one of them
            continue
        if field != b"%b%b%08x%b" % (key, colon, crc32(memoryview(text)[:-size]), after):
            raise ValueError("it does not fit its checksum: it was changed after it was written")
        return True
    return False


def parse_object(text: bytes) -> dict[str, Any]:
    """A JSON object without its checksum, with which it is compared. NaN and infinities are read.

    Raises:
        ValueError: they do not fit, or the text is no JSON object, or nested too deeply.
    """
    verify(text)
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    found.pop(FIELD, None)
    return found
