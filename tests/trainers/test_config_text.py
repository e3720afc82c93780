"""Configurations as text: printed complete, and unknown names that come with what may have been meant."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from marl_gem import cli
from marl_gem.errors import ConfigError
from marl_gem.trainers.config import parse, read, recipes
from marl_gem.trainers.config_text import field_comments, to_toml
from marl_gem.trainers.sections import TrainConfig, TrainingConfig
from tests.trainers.support import KUHN, desk, kuhn

STRANGE = 'a "quote", \\ back, \n line, \t tab, \x7f, \u0000, \U0001f600 and ü = # [x]'


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_reads_back_equal(name: str) -> None:
    config = parse(read(name), name)
    assert parse(tomllib.loads(to_toml(config)), "printed") == config


def test_everything_that_a_configuration_may_hold_reads_back_equal() -> None:
    several = {
        "scenarios": [{"id": KUHN, "options": {STRANGE: [1, {"x": 1e-5}]}, "wrappers": ["time_limit=3"]}, {"id": KUHN}],
        "policy": {"chat_template_kwargs": {"deep": {"er": [True, 1.5, "x"]}}},
        "training": {"learning_rate": 1e-7, "max_grad_norm": 1e22},
        "league": {"fixed": {"runs/x@3:a b": 0.5, "random": 1}},
    }
    for config in (desk(), kuhn("seed=9223372036854775807"), msgspec.convert(several, TrainConfig)):
        assert msgspec.convert(tomllib.loads(to_toml(config)), TrainConfig) == config
    with pytest.raises(ConfigError, match="a text that cannot be written"):
        to_toml(msgspec.convert({"scenarios": [{"id": "\ud800"}]}, TrainConfig))


def test_each_field_comes_with_its_meaning() -> None:
    text = to_toml(kuhn())
    for name, comment in field_comments(TrainingConfig).items():
        assert comment and f"\n{name} = " in text
    lines = text.splitlines()
    assert lines[lines.index("updates = 6") - 1] == "# How many updates there are."
    assert max(map(len, lines)) <= 120


def test_the_command_line_prints_what_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["marl-gem", "train", "kuhn", "--updates", "7", "--seed", "3", "--print-config"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    config = parse(tomllib.loads(capsys.readouterr().out), "printed")
    assert not ended.value.code and (config.training.updates, config.seed) == (7, 3)
    assert not list(tmp_path.iterdir()), "nothing was begun"


@pytest.mark.parametrize(
    ("values", "meant"),
    [
        ({"polcy": {}}, "policy"),
        ({"policy": {"star_from": "x"}}, "start_from"),
        ({"policy": {"learning_rate": 1}}, "learning_rate"),
        ({"imitation": {"step": 1}}, "steps"),
        ({"algorithm": {"nam": "rebn"}}, "name"),
        ({"algorithm": {"name": "rebm"}}, "'rebn'"),
        ({"algorithm": {"options": {"group_bye": "agent"}}}, "group_by"),
        ({"training": {"keep_evry": 1}}, "keep_every"),
        ({"league": {"prioritised": 1}}, "prioritized"),
        ({"league": {"fixed": {"randm": 1}}}, "random"),
        ({"evaluation": {"oponents": []}}, "opponents"),
        ({"phases": [{"strt": 1, "seats": {}}]}, "start"),
        ({"scenarios": [{"id": KUHN, "wieght": 1}]}, "weight"),
        ({"option": {"x": 1}}, "options"),
        ({"wraper": []}, "wrappers"),
    ],
    ids=str,
)
def test_an_unknown_name_comes_with_what_may_be_meant(values: dict[str, Any], meant: str) -> None:
    values = values if "scenarios" in values else {"scenario": KUHN, **values}
    with pytest.raises(ConfigError, match=rf"[Dd]id you mean (\w+\.)?{meant}\?"):
        parse(values, "test")


def test_a_misspelt_scenario_is_seen() -> None:
    with pytest.raises(ConfigError, match="did you mean scenario where it says 'scenaro'"):
        parse({"scenaro": KUHN}, "test")
