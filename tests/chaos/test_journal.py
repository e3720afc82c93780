"""Some cuts and flipped bits of the long round."""

from __future__ import annotations

import json
import random
from pathlib import Path

from marl_gem.runs.journal import Journal
from tests.chaos import journal


def test_a_journal_that_is_cut_is_resumed(tmp_path: Path) -> None:
    assert not journal.torn(tmp_path, random.Random(1), 25).violations


def test_a_flipped_bit_is_named_or_changes_nothing(tmp_path: Path) -> None:
    assert not journal.flipped(tmp_path, random.Random(2), 40).violations


def test_a_flipped_bit_in_metrics_is_named_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    Journal(path).append(json.dumps({"update": number, "loss": number / 7}).encode() for number in range(20))
    assert not journal.flipped_rows(path, random.Random(3), 300).violations
