"""Python's garbage collector, while many small records are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Make no garbage collections within the block; reference counts still free what nothing refers to.

    An update's episodes stay until it has learned from them, and the collector would walk through all of them, and
    through everything that was ever imported, again and again. It changes no result.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
