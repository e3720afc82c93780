"""Checksums of JSON objects: every flipped bit is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from marl_gem.runs.checksum import parse_object, verify, with_checksum

OBJECTS = (b'{"a":1,"b":"text"}', b'{"a":{}}', b'{\n  "a": {\n    "b": [1, 2]\n  }\n}\n')


def flipped(text: bytes) -> Iterator[bytes]:
    """The text with each of its bits flipped."""
    for place in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[place] ^= 1 << bit
            yield bytes(damaged)


@pytest.mark.parametrize("text", OBJECTS)
def test_an_object_is_read_back_without_its_checksum(text: bytes) -> None:
    written = with_checksum(text)
    assert verify(written) and not verify(text)
    assert parse_object(written) == parse_object(text) == json.loads(text)
    assert written.count(b"\n") == (text.rstrip().count(b"\n") + 1 if b"\n" in text else 0)


@pytest.mark.parametrize("text", OBJECTS)
def test_every_flipped_bit_is_an_error(text: bytes) -> None:
    for damaged in flipped(with_checksum(text)):
        with pytest.raises(ValueError, match=r".") as caught:
            parse_object(damaged)
        assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("text", OBJECTS)
def test_white_space_after_the_object_does_not_count(text: bytes) -> None:
    assert verify(with_checksum(text) + b"\r\n\n ")


@pytest.mark.parametrize("text", [b"", b"{}", b"null", b"[1]", b"[" * 100_000, b"\x00", b"\xff\xfe", b'{"crc32":7}'])
def test_other_texts_have_no_checksum(text: bytes) -> None:
    assert not verify(text)
