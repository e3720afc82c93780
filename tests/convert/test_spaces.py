"""The spaces of text."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("pettingzoo")

import numpy as np  # noqa: E402

from marl_gem.convert import Content, FreeText  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""PettingZoo's and Gymnasium's checks warn of spaces that are not arrays."""
from tests.convert.envs import STRANGE_TEXTS  # noqa: E402


@pytest.mark.parametrize("text", STRANGE_TEXTS)
def test_a_space_of_text_holds_any_text(text: str) -> None:
    space = FreeText()
    assert text in space and text in Content()
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable([text])))) == [text]


@pytest.mark.parametrize("thing", [None, 7, b"bytes", ["a"], {"a": 1}, np.zeros(3)])
def test_a_space_of_text_holds_nothing_else(thing: Any) -> None:
    assert thing not in FreeText() and thing not in Content()


def test_content_is_text_or_parts() -> None:
    parts: Any = [{"type": "text", "text": "Look:"}, {"type": "image", "data": "..."}]
    assert parts in Content() and [] in Content() and parts not in FreeText()
    assert [{"text": "no type"}] not in Content() and [*parts, "text"] not in Content()
    assert Content().from_jsonable(json.loads(json.dumps(Content().to_jsonable([parts, "text"])))) == [parts, "text"]


def test_samples_repeat_under_a_seed_vary_and_can_be_written_to_a_file() -> None:
    first, second = FreeText(seed=1), FreeText()
    second.seed(1)
    texts = [first.sample() for _ in range(200)]
    assert texts == [second.sample() for _ in range(200)] != [FreeText(seed=2).sample() for _ in range(200)]
    assert len(set(texts)) > 150 and all(text in first for text in texts)
    assert "" in texts and any(not text.isascii() for text in texts) and max(map(len, texts)) > 40
    "".join(texts).encode("utf-8")


def test_samples_of_a_mask_or_of_what_is_legal() -> None:
    space = FreeText(["[1]", "[2]"], seed=3)
    assert {space.sample() for _ in range(50)} == {"[1]", "[2]"}
    assert {space.sample(mask=["x", "y", "z"]) for _ in range(50)} == {"x", "y", "z"}
    masks: Any = ([], "xyz", np.array([0, 1]))
    for mask in masks:
        with pytest.raises(ValueError):
            space.sample(mask=mask)
    with pytest.raises(ValueError, match="probabilit"):
        space.sample(probability=np.array([0.5, 0.5]))  # type: ignore[arg-type]


def test_spaces_are_equal_by_kind_and_can_be_pickled() -> None:
    assert FreeText() == FreeText(["[1]"], seed=7) != Content()
    assert repr(FreeText()) == "FreeText()" and repr(Content()) == "Content()"
    space = FreeText(seed=5)
    copy = pickle.loads(pickle.dumps(space))
    assert copy == space and copy.sample() == space.sample()
