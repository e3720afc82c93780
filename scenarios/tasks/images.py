"""Images of data sets, as URLs for observations."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marl_gem.errors import RecordError
from marl_gem.faults import message_of, type_name

MOST_BYTES = 20_000_000
"""A larger image is refused."""

_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def image_urls(images: Any, folder: Path, where: str) -> tuple[str, ...]:
    """The URLs of one image or several.

    Args:
        images: None; a URL, a file, bytes, a picture of Pillow, or {"bytes": ..., "path": ...} as `datasets` has them;
            or a list of these.
        folder: where files lie that are named without a folder.
        where: for messages.

    Raises:
        RecordError: a file cannot be read, or it is no PNG, JPEG, GIF or WebP image.
    """
    if images is None:
        return ()
    listed = images if isinstance(images, (list, tuple)) else [images]
    return tuple(_url(image, folder, where) for image in listed)


def data_url(data: bytes, where: str = "an image") -> str:
    """A data: URL that contains an image.

    Raises:
        RecordError: these are not the bytes of a PNG, JPEG, GIF or WebP image, or too many.
    """
    kind = next((kind for start, kind in _TYPES.items() if data.startswith(start)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind or len(data) > MOST_BYTES:
        raise RecordError(f"{where}: no PNG, JPEG, GIF or WebP image of at most {MOST_BYTES:,} bytes")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _url(image: Any, folder: Path, where: str) -> str:
    if isinstance(image, str) and image.startswith(("data:image/", "https://", "http://")):
        return image
    if isinstance(image, (bytes, bytearray)):
        return data_url(bytes(image), where)
    if isinstance(image, Mapping) and isinstance(image.get("bytes"), bytes):
        return data_url(image["bytes"], where)
    if isinstance(image, Mapping) and image.get("path"):
        image = image["path"]
    if isinstance(image, (str, Path)) and str(image):
        try:
            return data_url((folder / image).read_bytes(), f"{where}: {image}")
        except OSError as error:
            raise RecordError(f"{where}: {image} cannot be read: {error.strerror or message_of(error)}") from error
    if hasattr(image, "save") and hasattr(image, "mode"):  # Pillow's
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return data_url(buffer.getvalue(), where)
    raise RecordError(f"{where}: an image is a URL, a file or bytes, not {type_name(image)}")
