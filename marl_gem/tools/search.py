"""The tool `search`: passages of a file or a folder, found by BM25.

    marl-gem eval qa.py:Questions --tool search:corpus=passages.jsonl,top=3

A corpus is a file of JSON lines (`text` or `contents`, and perhaps `title`, a passage a line), a text file (a passage
a paragraph), or a folder of these. Its index is built once, kept in a cache on disk, read from there by memory map, and
shared by all episodes and processes. Search: Lu, bm25s (arXiv 2407.03618), Lucene's variant of BM25.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from marl_gem.errors import ConfigError, MissingPackage
from marl_gem.tools.functions import FunctionTool, tool
from marl_gem.tools.names import makes_tools
from marl_gem.types import read_json

CACHE = "MARL_GEM_CACHE"
"""The environment variable that names the folder of the cache; by default ~/.cache/marl_gem."""

_FORMAT = "1"
_SUFFIXES = (".jsonl", ".txt", ".md")

Style = Literal["plain", "information"]


class Passage(NamedTuple):
    """A passage of a corpus, and the title of what it is from."""

    title: str
    text: str


@makes_tools
def search(corpus: str, top: int = 3, style: Style = "plain", name: str = "search") -> FunctionTool:
    """A tool that searches a corpus.

    Args:
        corpus: a file or a folder.
        top: so many passages are shown.
        style: "plain" numbers them; "information" is what Search-R1 and GEM show: `Doc 1(Title: ...) ...` within
            <information> tags.
        name: of the tool, where an agent has several.

    Raises:
        ConfigError: the corpus is missing, empty or damaged; the message says where.
        MissingPackage: bm25s is not installed.
    """
    if type(top) is not int or not 1 <= top <= 1000 or style not in get_args(Style):
        raise ConfigError(f"search: top is a number from 1 to 1000, style one of {get_args(Style)}")
    index = Index(Path(corpus))

    def find(query: str) -> str:
        """Search for passages.

        Args:
            query: Words that the passages hold.
        """
        return _shown(index.search(query, top), style)

    return tool(name=name)(find)


class Index:
    """The index of a corpus; `search` may be called in many threads.

    Args:
        corpus: a file or a folder.
        cache: the folder of all indexes.

    Raises:
        ConfigError: the corpus is missing, empty or damaged.
        MissingPackage: bm25s is not installed.
    """

    def __init__(self, corpus: Path, cache: Path | None = None) -> None:
        try:
            import bm25s
            import numpy
        except ImportError as error:
            raise MissingPackage(error.name or "bm25s", "search", "the tool search") from error
        files = _files(corpus)
        folder = (cache or Path(os.environ.get(CACHE) or Path.home() / ".cache" / "marl_gem")) / "search" / _key(files)
        if not folder.is_dir():
            _build(corpus, files, folder)
        self._bm25s = bm25s
        self._index: Any = bm25s.BM25.load(str(folder), mmap=True)
        self._starts: Any = numpy.load(folder / "starts.npy", mmap_mode="r", allow_pickle=False)
        with (folder / "passages").open("rb") as file:
            self._passages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> Passage:
        return Passage(*json.loads(self._passages[self._starts[number] : self._starts[number + 1]]))

    def search(self, query: str, top: int) -> list[Passage]:
        """The passages that fit a query best, at most `top`; those that share no word with it are left out."""
        words = self._bm25s.tokenize([query[:10_000]], stopwords="en", show_progress=False)
        if not words.vocab:
            return []
        with self._lock:  # about a millisecond; the library does not say that it may be called twice at a time
            numbers, scores = self._index.retrieve(words, k=min(top, len(self)), show_progress=False)
        return [self[int(number)] for number, score in zip(numbers[0], scores[0], strict=True) if score > 0]


def _shown(passages: list[Passage], style: Style) -> str:
    if style == "information":
        lines = [f"Doc {number}(Title: {title}) {text}" for number, (title, text) in enumerate(passages, 1)]
        return "<information>" + "\n".join(lines) + "</information>"
    if not passages:
        return "No passage holds these words."
    return "\n\n".join(
        f"[{number}] {f'{title}: ' if title else ''}{text}" for number, (title, text) in enumerate(passages, 1)
    )


def _files(corpus: Path) -> list[Path]:
    files = sorted(f for f in corpus.rglob("*") if f.suffix in _SUFFIXES) if corpus.is_dir() else [corpus]
    if not files or not all(file.is_file() for file in files):
        raise ConfigError(f"search: {str(corpus)!r} is no file, and no folder with {', '.join(_SUFFIXES)} files")
    return files


def _key(files: list[Path]) -> str:
    """A name for the index of these files as they are now."""
    digest = blake2b(_FORMAT.encode(), digest_size=16)
    for file in files:
        stat = file.stat()
        digest.update(json.dumps([str(file.resolve()), stat.st_size, stat.st_mtime_ns]).encode())
    return digest.hexdigest()


def _build(corpus: Path, files: list[Path], folder: Path) -> None:
    """Write the index of a corpus, so that it is there complete or not at all."""
    import bm25s
    import numpy

    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix="unfinished-"))
    try:
        texts, starts = [], [0]
        with (unfinished / "passages").open("wb") as out:
            for file in files:
                for title, text in _read(file):
                    starts.append(starts[-1] + out.write(json.dumps([title, text]).encode()))
                    texts.append(f"{title} {text}")
        if not texts:
            raise ConfigError(f"search: {str(corpus)!r} holds no passage")
        numpy.save(unfinished / "starts.npy", numpy.array(starts, dtype=numpy.int64))
        index = bm25s.BM25()
        try:
            index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
        except ValueError as error:
            raise ConfigError(f"search: {str(corpus)!r} cannot be indexed: {error}") from error
        index.save(str(unfinished))
        with suppress(OSError):  # another process was faster
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _read(file: Path) -> Iterator[Passage]:
    """The passages of a file."""
    try:
        if file.suffix != ".jsonl":
            for paragraph in file.read_text("utf-8").split("\n\n"):
                if text := " ".join(paragraph.split()):
                    yield Passage(file.stem, text)
            return
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _passage(line, f"{file}, line {number}")
    except UnicodeDecodeError as error:
        raise ConfigError(f"search: {file} is not UTF-8: {error}") from error


def _passage(line: str, where: str) -> Passage:
    try:
        values = read_json(line)
    except ValueError as error:
        raise ConfigError(f"search: {where} is not JSON: {error}") from error
    text = values.get("text", values.get("contents")) if isinstance(values, dict) else None
    title = values.get("title", "") if isinstance(values, dict) else ""
    if not isinstance(text, str) or not isinstance(title, str):
        raise ConfigError(f'search: {where} is no passage; write {{"title": "...", "text": "..."}}')
    if not title and "\n" in text:  # Search-R1's corpora: the title in quotes on the first line
        first, _, rest = text.partition("\n")
        if len(first) > 1 and first[0] == first[-1] == '"':
            title, text = first[1:-1], rest
    return Passage(title, text)
