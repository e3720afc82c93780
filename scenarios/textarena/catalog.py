"""Which of TextArena's games work, with how many players, and what the others want.

`catalog.json` holds what `scripts/textarena_survey.py` found by playing every game. What a game needs, such as a word
list, is looked for on this machine each time, so that a game becomes available as soon as it is there.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("catalog.json")


class Entry(msgspec.Struct, frozen=True):
    """What is known of one game."""

    # The numbers of players that the game works with.
    players: tuple[int, ...] = ()

    # The winner's return is 1 and the loser's -1, or both are 0: it is a contest of two players.
    zero_sum: bool = False

    # What must be on this machine, as "kind:name"; the kinds are those of `_HELP`.
    needs: tuple[str, ...] = ()

    # Why the game cannot work at all; empty if it can.
    broken: str = ""


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Every game by TextArena's id without suffix."""
    return msgspec.convert(json.loads(FILE.read_text(encoding="utf-8"))["games"], dict[str, Entry])


def entry(game: str) -> Entry:
    """What is known of this game; an empty entry if nothing is."""
    return entries().get(game, Entry())


def unavailable(entry: Entry) -> str:
    """Why the game cannot work here, and what would help; empty if it can."""
    if entry.broken:
        return f"it is broken in TextArena 0.7.4 ({entry.broken}). No setting helps; choose another game"
    return "; ".join(_HELP[kind].format(what) for kind, what in _split(entry.needs) if not _is_here(kind, what))


def title(game: str) -> str:
    """The game's name in words."""
    name, _, variant = game.partition("-v0")
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", name) + variant.replace("-", ", ", 1)


def waits(entry: Entry) -> bool:
    """Whether the game calls a service over the network while it is played."""
    return any(kind == "key" for kind, _ in _split(entry.needs))


_HELP = {
    "python": "it is written for Python {0}: run it with that or a newer one",
    "module": "it needs the module {0!r}, which TextArena does not bring along: pip install {0}",
    "key": "another language model takes part in it: set the environment variable {0} to your key",
    "nltk": "it needs data of NLTK: python -m nltk.downloader {0}",
}


def _split(needs: Sequence[str]) -> list[tuple[str, str]]:
    return [(kind, what) for kind, _, what in (need.partition(":") for need in needs)]


def _is_here(kind: str, what: str) -> bool:
    if kind == "python":
        return sys.version_info >= tuple(map(int, what.split(".")))
    if kind == "module":
        return importlib.util.find_spec(what) is not None
    if kind == "key":
        return bool(os.environ.get(what))
    return any(any(folder.glob(f"*/{what}*")) for folder in _nltk_folders())


@functools.cache
def _nltk_folders() -> list[Path]:
    """Where NLTK looks for data. NLTK itself could tell, but takes a second to import."""
    named = [Path(folder) for folder in os.environ.get("NLTK_DATA", "").split(os.pathsep) if folder]
    prefixes = [Path(sys.prefix) / part for part in (".", "share", "lib")]
    prefixes += [Path(folder) for folder in ("/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib")]
    return [folder for folder in [*named, *(p / "nltk_data" for p in [Path.home(), *prefixes])] if folder.is_dir()]
