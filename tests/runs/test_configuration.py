"""Configurations as plain data, and the folder they lie in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marl_gem.errors import ConfigError
from marl_gem.runs.configuration import differences, flatten, rename_keys
from marl_gem.runs.folder import fresh_folder, is_empty, read_config, write_config


def test_a_nested_configuration_is_flattened_to_dotted_names() -> None:
    assert flatten({"seed": 1, "limits": {"turns": {"most": 3}, "cost": None}, "empty": {}}) == {
        "seed": 1,
        "limits.turns.most": 3,
        "limits.cost": None,
    }


class TestDifferences:
    def test_are_named_field_by_field(self) -> None:
        before = {"seed": 1, "limits": {}, "seats": {"a": "x", "b": "y"}}
        after = {"seed": 2, "limits": {"turns": 3}, "seats": {"a": "x", "b": "z"}}
        assert differences(before, after) == [
            "seed was 1 and would be 2",
            "seats.b was 'y' and would be 'z'",
            "limits.turns was not set and would be 3",
        ]

    def test_of_equal_configurations_are_none(self) -> None:
        assert differences({"a": {"b": [1]}}, {"a": {"b": [1]}}) == []

    def test_can_be_ignored(self) -> None:
        assert differences({"version": "1", "seed": 1}, {"version": "2", "seed": 1}, ignore={"version"}) == []

    @pytest.mark.parametrize(("after", "count"), [(9, 0), (8, 0), (7, 1), (None, 1)])
    def test_may_be_growth(self, after: object, count: int) -> None:
        assert len(differences({"n": 8}, {"n": after}, may_grow={"n"})) == count


class TestRenamedKeys:
    def test_move_to_their_new_names(self) -> None:
        old = {"scenario": "x", "self_play": {"older_selves": 0.5, "games": 3}}
        names = {"self_play.older_selves": "self_play.opponent_pool_fraction", "scenario": "scenario.id"}
        new = {"scenario": {"id": "x"}, "self_play": {"games": 3, "opponent_pool_fraction": 0.5}}
        assert rename_keys(old, names) == new
        assert old["self_play"] == {"older_selves": 0.5, "games": 3}

    def test_may_move_to_another_table(self) -> None:
        assert rename_keys({"kl": 1}, {"kl": "algorithm.kl"}) == {"algorithm": {"kl": 1}}

    def test_of_a_new_configuration_change_nothing(self) -> None:
        new = {"a": {"new": 1, "old": 2}}
        assert rename_keys(new, {"a.old": "a.new", "b.old": "b.new", "a.new.old": "x"}) == new


class TestTheConfigurationFile:
    def test_is_read_back(self, tmp_path: Path) -> None:
        write_config(tmp_path / "runs" / "first", {"seed": 1})
        assert read_config(tmp_path / "runs" / "first") == {"seed": 1}

    def test_is_not_written_again_when_it_is_equal(self, tmp_path: Path) -> None:
        write_config(tmp_path, {"seed": 1})
        before = (tmp_path / "config.json").stat().st_ino
        write_config(tmp_path, {"seed": 1})
        assert (tmp_path / "config.json").stat().st_ino == before
        write_config(tmp_path, {"seed": 2})
        assert read_config(tmp_path) == {"seed": 2}

    @pytest.mark.parametrize(
        ("write", "message"),
        [
            (lambda path: None, "is no run: it holds no config.json"),
            (lambda path: path.write_text("{"), "config.json is damaged"),
            (lambda path: path.write_text("[]"), "config.json is damaged"),
            (lambda path: path.write_bytes(b"\xff"), "config.json is damaged"),
        ],
    )
    def test_that_cannot_be_used_is_an_error(
        self, tmp_path: Path, write: Callable[[Path], object], message: str
    ) -> None:
        write(tmp_path / "config.json")
        with pytest.raises(ConfigError, match=message):
            read_config(tmp_path)


class TestANewFolder:
    def test_has_the_first_number_that_is_free(self, tmp_path: Path) -> None:
        for number in (1, 2, 4):
            (tmp_path / f"kuhn-{number}").mkdir()
        assert fresh_folder(tmp_path, "kuhn") == tmp_path / "kuhn-3"
        assert not (tmp_path / "kuhn-3").exists()
        assert fresh_folder(tmp_path / "none", "a.b") == tmp_path / "none" / "a.b-1"

    def test_is_empty_with_nothing_but_a_lock(self, tmp_path: Path) -> None:
        assert is_empty(tmp_path / "none") and is_empty(tmp_path)
        (tmp_path / ".lock").write_text("1")
        assert is_empty(tmp_path)
        (tmp_path / "notes").write_text("")
        assert not is_empty(tmp_path)
