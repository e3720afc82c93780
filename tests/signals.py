"""Signals to processes that tests have started."""

from __future__ import annotations

import os
import time
from pathlib import Path


def send(pid: int, number: int) -> None:
    """Send a signal and wait until the process has taken it, so that a second one is not merged with it."""
    os.kill(pid, number)
    deadline = time.monotonic() + 60
    while number in pending(pid):
        assert time.monotonic() < deadline, f"process {pid} did not take signal {number}"
        time.sleep(0.005)


def pending(pid: int) -> set[int]:
    """The signals that a process has not taken yet, in Linux; none if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:
        return set()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return {number for number in range(1, 65) for mask in masks if mask >> (number - 1) & 1}
