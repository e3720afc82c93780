"""The reference that docs/generate makes: it leaves nothing out, and refuses what has no description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from generate import api, commands, config, metrics, promises, scenarios, wrappers
from generate.docstrings import literal_blocks
from generate.markdown import Undocumented, escape

import marl_gem.registry
from marl_gem.cli import app
from marl_gem.trainers.metrics import METRIC_FORMULAS
from marl_gem.trainers.sections import TrainConfig

ROOT = Path(__file__).parents[2]


def test_every_command_and_option_is_there() -> None:
    page = commands.pages()["commands"]
    for command in app.registered_commands:
        assert f"## `marl-gem {command.name}`" in page
    assert "`--seat AGENT=WHO`" in page
    assert "## `marl-gem tau import`" in page


def test_an_option_without_help_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = typer.Typer()

    @small.command("first")
    def first(count: int = typer.Option(1, "--count")) -> None:
        """Do something."""

    @small.command("second")
    def second() -> None:
        """Do something else."""

    monkeypatch.setattr(commands, "app", small)
    with pytest.raises(Undocumented, match="'count' of 'marl-gem first' has no help text"):
        commands.pages()


def test_every_module_is_on_a_page_of_its_area() -> None:
    pages = api.pages()
    assert ".. autoclass:: marl_gem.env.MultiAgentEnv" in pages["api/contract"]
    assert "marl_gem.rollout.collect" in pages["api/rollout"]
    assert api.area_of("scenarios.textarena.env") is None
    assert api.area_of("unheard_of.part") == api.OTHER


def test_every_field_of_a_configuration_is_there_with_its_comment_and_bounds() -> None:
    page = config.pages()["config"]
    for name in TrainConfig.__struct_fields__:
        assert f"`{name}`" in page or f"`[{name}]`" in page, name
    assert "| `gamma` | `float >= 0, <= 1` | `1.0` |" in page
    assert 'Options of the algorithm "rebn"' in page
    assert "`group_by`" in page


class Uncommented(msgspec.Struct):
    # How many there are, from 0 up.
    count: int = 0
    size: float = 1.0


def test_a_field_without_a_comment_is_refused() -> None:
    with pytest.raises(Undocumented, match=r"Uncommented\.size has no comment above it"):
        config.fields(Uncommented)


def test_every_metric_is_there_with_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    page = metrics.pages()["metrics"]
    for name in METRIC_FORMULAS:
        assert f"| `{name}` |" in page
    monkeypatch.setitem(METRIC_FORMULAS, "vibes", "")
    with pytest.raises(Undocumented, match="'vibes' has no formula"):
        metrics.pages()


def test_every_wrapper_with_a_name_is_there() -> None:
    page = wrappers.pages()["wrappers"]
    assert "| `time_limit` | `max_steps` |" in page
    assert len(marl_gem.registry.wrappers()) == page.count("\n| `")


def test_every_promise_of_the_contract_has_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    promised = promises.promised()
    assert len(promised) >= 7
    assert [*promised] == list(range(1, len(promised) + 1))
    assert "test_promise_3_no_text_raises" in promises.pages()["promises"]
    monkeypatch.setattr(promises, "promised", lambda: {**promised, 99: "Nobody ever loses."})
    with pytest.raises(Undocumented, match=r"promises \[99\]"):
        promises.pages()


def test_every_scenario_is_there_with_a_transcript() -> None:
    pages = scenarios.pages()
    everything = "".join(pages.values())
    for scenario in marl_gem.registry.list():
        assert f"`{scenario.id}`" in everything
    assert "marl-gem train game:KuhnPoker-v0" in pages["scenarios/game"]
    assert "Your card: Q." in pages["scenarios/game"]


def test_a_scenario_without_a_description_is_refused(restored_registry: Any) -> None:
    marl_gem.register("my:Silent-v0", "marl_gem.scenarios.games.tictactoe:TicTacToe")
    with pytest.raises(Undocumented, match="my:Silent-v0 is registered without a description"):
        scenarios.pages()


def test_indented_blocks_of_docstrings_become_code_but_sections_and_lists_stay() -> None:
    lines = ["Do it.", "", "    do(it)", "Else", "    not.", "", "Args:", "    it: a thing.", "", "- one", "", "  more"]
    code = ["Do it.", "", "", "::", "", "    do(it)", "", "Else", "", "::", "", "    not.", ""]
    assert literal_blocks(lines) == [*code, *lines[6:]]


def test_markup_in_descriptions_is_shown_as_it_stands() -> None:
    assert escape("a|b *c* `d*e`\nf<g>") == r"a\|b \*c\* `d*e` f\<g\>"
