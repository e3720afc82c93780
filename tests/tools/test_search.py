"""The tool search: corpora of several forms, an index on disk, and queries of any kind."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marl_gem.errors import ConfigError

pytest.importorskip("bm25s")

from marl_gem.tools import load_tools, names
from marl_gem.tools.search import CACHE, Index, Passage, search

CITIES = {"Rome": "the capital of Italy on the Tiber", "Paris": "the capital of France on the Seine", "Oslo": "a fjord"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(names, "_loaded", {})
    return tmp_path / "cache" / "search"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "cities.jsonl"
    path.write_text("".join(json.dumps({"title": city, "text": text}) + "\n" for city, text in CITIES.items()))
    return path


def found(source: str, query: str) -> str:
    (made,) = load_tools(source)
    return asyncio.run(made.call({"query": query})).text


def test_passages_are_found_and_shown(corpus: Path) -> None:
    assert found(f"search:corpus={corpus},top=1", "Which city lies on the Tiber?") == f"[1] Rome: {CITIES['Rome']}"
    shown = found(f"search:corpus={corpus},style=information", "capital")
    assert shown.startswith("<information>Doc 1(Title: ") and shown.count("Doc ") == 2
    assert found(f"search:corpus={corpus}", "zebra") == "No passage holds these words."


@pytest.mark.parametrize("query", ["", " ", "the", "\ud800", "<search>", "a" * 100_000, "\x00"])
def test_any_query_has_an_answer(corpus: Path, query: str) -> None:
    assert found(f"search:corpus={corpus}", query) == "No passage holds these words."


def test_an_index_is_built_once(corpus: Path, cache: Path) -> None:
    first = Index(corpus)
    (folder,) = cache.iterdir()
    built = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert Index(corpus)[0] == first[0] == Passage("Rome", CITIES["Rome"]) and len(first) == 3
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == built
    with corpus.open("a") as file:
        file.write(json.dumps({"text": "a new passage about lava"}) + "\n")
    assert Index(corpus).search("lava", 3) == [Passage("", "a new passage about lava")]


def test_many_may_search_at_the_same_time(corpus: Path) -> None:
    index = Index(corpus)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda city: index.search(city, 1)[0].title, [*CITIES] * 20))
    assert answers == [*CITIES] * 20


def test_a_folder_of_text_and_the_form_of_search_r1(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "notes.txt").write_text("Volcanoes spit\nlava.\n\n\nGlaciers carry ice.\n")
    (tmp_path / "wiki.jsonl").write_text(json.dumps({"id": "0", "contents": '"Geyser"\nHot water shoots up.'}) + "\n\n")
    index = Index(tmp_path)
    assert index.search("lava", 1) == [Passage("notes", "Volcanoes spit lava.")]
    assert index.search("hot water", 1) == [Passage("Geyser", "Hot water shoots up.")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a"}\n{broken\n', r"line 2 is not JSON"),
        ('{"text": "a"}\n[1]\n', r"line 2 is no passage"),
        ('{"text": 3}\n', r"line 1 is no passage"),
        ("\n\n", "holds no passage"),
        ("\x00", "line 1 is not JSON"),
    ],
)
def test_a_damaged_corpus_says_where(tmp_path: Path, cache: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        search(str(path))
    assert list(cache.iterdir()) == []


def test_what_cannot_be_searched(tmp_path: Path, corpus: Path) -> None:
    for wrong in (tmp_path / "missing.jsonl", tmp_path / "empty"):
        with pytest.raises(ConfigError, match="is no file"):
            search(str(wrong))
    for settings in ({"top": 0}, {"style": "loud"}):
        with pytest.raises(ConfigError, match="top is a number"):
            search(str(corpus), **settings)
