"""Some kills of the long round."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import kills

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_an_evaluation_that_was_killed_equals_an_unbroken_one(tmp_path: Path, processes: int) -> None:
    row = kills.evaluation(tmp_path / "runs", random.Random(processes), 2, processes)
    assert not row.violations


@pytest.mark.long
def test_a_training_that_was_killed_equals_an_unbroken_one(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    row = kills.training(tmp_path / "runs", random.Random(3), 1, updates=2)
    assert not row.violations
