"""Writes the data and the tasks of the mini domains anew: python -m scripts.mini_worlds."""

from __future__ import annotations

from scripts.mini_worlds import write

if __name__ == "__main__":
    write()
