"""Command lines at random: none gives a traceback, hangs, or changes a file that it was not asked to write.

Each runs in a process that is forked from one that has imported the command line, under limits of memory, processor
time, file size and open files. Under root it gives up the right to write everywhere."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.chaos.command_grammar import CommandLine, Grammar
from tests.chaos.command_process import CANARY, LIMIT, NOBODY, Ended, import_training, run
from tests.chaos.command_world import TRAINING, build
from tests.chaos.table import Row

NO_TRACEBACK = "no traceback"
EXIT_CODE = "the exit code is 0, 1, 2, or 130 after Ctrl-C, with a message"
NO_HARM = "no file is changed or removed that the command was not asked to write"
ENDS = "it ends, and with it every process that it started"
PLAIN_OUTPUT = "no control sequence, no key in what is printed"
PROMISES = (NO_TRACEBACK, EXIT_CODE, NO_HARM, ENDS, PLAIN_OUTPUT)

CRASHES = ("Traceback (most recent call last)", "Exception ignored", "was never retrieved", "was never awaited")
TARGETS = ("--out", "--cache", "--into", "--runs", "--resume")
"""Options that name what a command writes."""

State = dict[str, tuple[int, int, int, int]]
"""Type, size, time and number of every file, by its path."""


def long_round(seed: int, count: int = 2000) -> list[Row]:
    """`count` command lines; a row for each promise."""
    return attack(seed, count)


def attack(
    seed: int, count: int, *, fresh_runs: bool = True, training: bool = True, log: Path | None = None
) -> list[Row]:
    """Carry out command lines in a world of damaged files.

    Args:
        seed: everything random follows from it.
        count: how many command lines.
        fresh_runs: whether the world also has runs as they are written now, which takes some seconds.
        training: whether training is among the commands; it needs torch, which takes seconds to import.
        log: where each command line is written down with how it ended.
    """
    begun = time.monotonic()
    if training:
        import_training()
    broken: dict[str, list[str]] = {promise: [] for promise in PROMISES}
    with world(seed, fresh_runs=fresh_runs) as folder, _log(log) as write:
        grammar, files = Grammar(folder, seed, training=training), Restored(folder)
        for number in range(count):
            line = grammar.draw()
            ended = run(line, folder, 2.0 if line.words[:1] == ["view"] else LIMIT)  # a page is served until Ctrl-C
            found = list(violations(line, ended, files.changes()))
            for promise, text in found:
                broken[promise].append(f"command {number}: {text}: {shown(line)}")
            about = f"{number} {ended.code} {ended.interrupts} {ended.seconds:.1f} {found}"
            write(f"{about} {shown(line)}\n{ended.err[-3000:]}\n")
            files.restore()
    seconds = time.monotonic() - begun
    return [Row("command lines from a grammar", promise, count, found, seconds) for promise, found in broken.items()]


def violations(line: CommandLine, ended: Ended, changed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The promises that a command broke, each with what happened.

    Args:
        line: the command line.
        ended: how it ended.
        changed: the files that were there and are not any more as they were, by path.
    """
    printed = ended.out + ended.err
    for crash in CRASHES:
        if crash in printed:
            yield NO_TRACEBACK, printed[printed.index(crash) :].strip().rpartition("\n")[2][:200]
            break
    if ended.code not in (0, 1, 2, 130) or (ended.code == 130) > ended.interrupts:
        yield EXIT_CODE, f"it ended with {ended.code}"
    elif ended.code and line.err == "file" and line.out != "broken pipe" and not printed.strip():
        yield EXIT_CODE, f"it ended with {ended.code} and said nothing"
    harmed = [path for path in changed if ended.code == 2 or not _asked_to_write(line.words, path)]
    if harmed:
        yield NO_HARM, f"changed with exit code {ended.code}: {harmed[:3]}"
    if ended.orphans or ended.code == -9:
        yield ENDS, "processes were left" if ended.orphans else f"killed after {ended.seconds:.0f} s"
    if any(ord(character) < 32 and character not in "\n\t\r" for character in printed) or CANARY in printed:
        yield PLAIN_OUTPUT, repr(next((row for row in printed.split("\n") if not row.isprintable()), CANARY)[:200])


def _asked_to_write(words: Sequence[str], path: str) -> bool:
    """Whether a command was to change this file, which was there before."""
    changes = ("--resume", "--force", "--cache", "record_episodes") if words[0] != "playthrough" else ("--out",)
    if not any(word.startswith(changes) for word in words):
        return False
    values = [after for flag, after in itertools.pairwise(words) if flag in TARGETS]
    values += [word.partition("=")[2] for word in words if word.startswith(tuple(f"{flag}=" for flag in TARGETS))]
    values += [word.rpartition("record_episodes=")[2] for word in words if "record_episodes=" in word]
    return any(Path(path).is_relative_to(os.path.normpath(value)) for value in values)


@contextlib.contextmanager
def world(seed: int, *, fresh_runs: bool = True) -> Iterator[Path]:
    """A folder of runs and other files, which belongs to whoever the commands run as."""
    with tempfile.TemporaryDirectory(prefix="marl_gem_commands_") as outer:
        folder = Path(outer) / "world"
        for name in ("world", "home", "tmp"):
            (Path(outer) / name).mkdir()
        _give_away(Path(outer))
        build(folder, seed, _make_runs if fresh_runs else lambda good: None)
        _give_away(Path(outer))
        yield folder
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


def _give_away(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _make_runs(good: Path) -> None:
    """Runs as they are written now."""
    _give_away(good.parent)
    training = good / "training.toml"
    training.write_text(TRAINING, "utf-8")
    seats = [f"--seat={who}" for who in ("user=scripted:expert", "user=scripted:novice", "assistant=scripted:expert")]
    for words in (
        ["eval", "game:KuhnPoker-v0", "-n", "3", "--out", "eval"],
        ["eval", "tau:desk-v0", "-n", "2", "--grid", *seats, "--out", "grid"],
        ["tournament", "game:KuhnPoker-v0", "--player", "a=random", "--player", "b=random", "-n", "2", "--out", "cup"],
        ["train", "training.toml", "--runs", ".", "--name", "training"],
    ):
        ended = run(CommandLine(words), good, limit=300)
        assert ended.code == 0, f"{words} ended with {ended.code}\n{ended.out}\n{ended.err}"
    training.unlink()


class Restored:
    """A folder that can be put back as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copy = folder.parent / "copy"
        shutil.copytree(folder, self._copy, symlinks=True, copy_function=_copy_file)
        self._state = _state(folder)

    def changes(self) -> list[str]:
        """The files, but hidden ones, that were there and are not any more as they were."""
        now = _state(self.folder)
        return [
            path
            for path, before in self._state.items()
            if now.get(path) != before and not stat.S_ISDIR(before[0]) and not Path(path).name.startswith(".")
        ]

    def restore(self) -> None:
        """Put everything back."""
        now = _state(self.folder)
        differing = {path for path in (*self._state, *now) if self._state.get(path) != now.get(path)}
        for path in sorted(differing, reverse=True):
            if path in now and not (stat.S_ISDIR(now[path][0]) and path in self._state):
                _remove(self.folder / path)
        for path in sorted(differing & self._state.keys()):
            source, target = self._copy / path, self.folder / path
            if source.is_dir() and not source.is_symlink():
                target.mkdir(exist_ok=True)
                shutil.copystat(source, target)
            else:
                _copy_file(str(source), str(target))
            _give_away_one(target)
        self._state = _state(self.folder)


def _give_away_one(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _copy_file(source: str, target: str) -> None:
    """Copy a file of any kind."""
    if stat.S_ISFIFO(os.lstat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _state(folder: Path) -> State:
    found: State = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        files = (about.st_size, about.st_mtime_ns, about.st_ino) if not stat.S_ISDIR(about.st_mode) else (0, 0, 0)
        found[str(path.relative_to(folder))] = (about.st_mode, *files)
    return found


def shown(line: CommandLine) -> str:
    """A command line for a report: long words are cut."""
    words = [repr(word) if len(word) < 120 else f"{word[:60]!r}... ({len(word)})" for word in line.words]
    streams = [
        f"{name}={value!r}" for name, value in line._asdict().items() if name != "words" and value not in ("file", "")
    ]
    return " ".join(["marl-gem", *words, *streams])


@contextlib.contextmanager
def _log(path: Path | None) -> Iterator[Callable[[str], object]]:
    if path is None:
        yield lambda text: None
    else:
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            yield file.write
