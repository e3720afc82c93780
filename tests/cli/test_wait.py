"""--wait: how long a model's server that cannot be reached is waited for, and --reset of training runs."""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marl_gem.cli import app
from marl_gem.errors import MarlGemError, ServerUnreachable
from marl_gem.llm.http import HTTPModel
from marl_gem.llm.models import Models
from marl_gem.specs import load_policy

KUHN = "game:KuhnPoker-v0"
AWAY = "tiny@http://127.0.0.1:9/v1"


def patience(text: str, models: Models) -> float:
    seconds: float = load_policy(text, KUHN, models=models).llm.patience  # type: ignore[attr-defined]
    return seconds


def test_a_policys_own_wait_counts_more_than_that_of_the_command() -> None:
    assert patience(AWAY, Models()) == 60
    models = Models(wait=900)
    assert patience(AWAY, models) == 900 and patience(f"{AWAY},wait=5", models) == 5
    assert patience(AWAY, pickle.loads(pickle.dumps(models))) == 900  # as worker processes get it


def test_a_server_that_is_to_name_its_only_model_is_waited_for_where_that_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Any] = []

    async def served(model: HTTPModel) -> list[str]:
        if not answers:
            answers.append("away")
            raise ServerUnreachable("away")
        return ["the/only-one"]

    monkeypatch.setattr(HTTPModel, "models", served)
    with pytest.raises(ServerUnreachable):
        Models().get("@http://127.0.0.1:9/v1")
    answers.clear()
    assert Models(wait=600).get("@http://127.0.0.1:9/v1").name == "the/only-one"


@pytest.mark.parametrize(
    "arguments",
    [
        ("play", KUHN, "--seat", f"player_0={AWAY}"),
        ("tournament", KUHN, "--player", f"a={AWAY}", "--player", "b=random", "-n", "2"),
    ],
)
def test_a_server_that_is_away_is_reported_without_waiting(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*arguments, "--wait", "0"], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    shown = str(result.exception) if isinstance(result.exception, MarlGemError) else result.output
    assert "Is the server running?" in shown, shown


def print_config(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["train", *arguments, "--print-config"])
    assert result.exit_code == 0, result.output
    return tomllib.loads(result.stdout)


def test_a_training_run_records_wait_and_reset() -> None:
    config = print_config(KUHN, "--wait", "900", "--reset", "village=Oslo", "--reset", "size=3")
    assert config["wait"] == 900
    assert config["scenarios"][0]["reset"] == {"village": "Oslo", "size": 3}
    assert print_config(KUHN)["wait"] == 60


def test_a_negative_wait_is_refused() -> None:
    result = CliRunner().invoke(app, ["play", KUHN, "--wait", "-1"], env={"COLUMNS": "200"})
    assert result.exit_code == 2 and "--wait" in result.output
