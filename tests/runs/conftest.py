"""A small disk that can be filled, for tests of what is written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("making a small disk needs root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)
