"""The list of runs, a run's results, and two runs side by side, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marl_gem.types import Response, Turn, to_json
from tests.viewer.library import answering, competed, evaluated
from tests.viewer.recorded import HOSTILE, Page, episode, write_run
from tests.viewer.test_training import training_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every kind; no test changes them."""
    folder = tmp_path_factory.mktemp("runs")
    evaluated(folder / "first", answering("first", "yes", "no", "no"), repeats=2)
    evaluated(folder / "second", answering("second", "no", "yes", "yes"), repeats=2)
    evaluated(folder / "grid", [answering("half", "yes", "no", "no"), answering("good", "yes", "yes", "no")])
    evaluated(folder / "broken", answering("broken", "break", "break", "break"))
    competed(folder / "tournament")
    training_run(folder / "training", updates=3)
    return folder


def names(tab: Any) -> list[str]:
    return [name.strip() for name in tab.locator(".runs a.name").all_inner_texts()]


CUT = (
    "[...document.querySelectorAll('.rows .row [role=cell]')]"
    ".filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"
)
"""The cells of an episode table whose content does not fit."""


def fits(tab: Any) -> bool:
    """Whether the page, and every table in it that does not scroll on purpose, fits into the window."""
    return bool(
        tab.evaluate(
            "document.documentElement.scrollWidth <= innerWidth && "
            "[...document.querySelectorAll('.runs, .scroll, .card')]"
            ".every((box) => box.scrollWidth <= box.clientWidth + 1)"
        )
    )


def test_runs_are_found_sorted_and_grouped(runs: Path, show: Callable[..., Page]) -> None:
    page = show(runs)
    tab = page.go()
    tab.wait_for_selector(".runs tbody tr >> nth=5")
    assert set(names(tab)) == {"first", "second", "grid", "broken", "tournament", "training"}
    assert "interrupted" in tab.inner_text("tr[data-name=training]") and "goes on" in tab.inner_text(".runs")
    assert "failed" in tab.inner_text("tr[data-name=broken]") and "ScenarioFault" in tab.inner_text(
        "tr[data-name=broken]"
    )
    tab.click("th button >> text=run")
    assert names(tab) == ["broken", "first", "grid", "second", "tournament", "training"]
    tab.click("th button >> text=run")
    assert names(tab)[0] == "training" and "reverse=1" in tab.url
    tab.select_option("select[aria-label=kind]", "evaluation")
    assert set(names(tab)) == {"first", "second", "broken"}
    tab.select_option("select[aria-label=status]", "failed")
    assert names(tab) == ["broken"]
    tab.reload()  # the address alone brings it all back
    tab.wait_for_selector("text=1 of 6 runs")
    assert names(tab) == ["broken"]
    tab.select_option("select[aria-label=status]", "")
    tab.select_option("select[aria-label=kind]", "")
    tab.fill("input[type=search]", "solver: good")
    tab.wait_for_selector("text=grid/02_good")
    tab.fill("input[type=search]", "no such run")
    tab.wait_for_selector("text=No run fits.")
    tab.fill("input[type=search]", "")
    tab.check("label.check input")
    tab.wait_for_selector("tr.group >> nth=2")
    assert "GradedTasks 4 runs" in tab.inner_text(".runs")


def test_from_the_list_to_a_comparison_to_both_episodes(runs: Path, show: Callable[..., Page]) -> None:
    page = show(runs)
    tab = page.go()
    tab.wait_for_selector(".runs tbody tr >> nth=5")
    tab.focus("tr[data-name=first] a.name")
    page.press("x")
    tab.wait_for_selector("text=Tick another run to compare it with first")
    tab.check("tr[data-name=second] input")
    page.press("c")
    tab.wait_for_selector(".flips >> nth=1")
    shown = tab.inner_text("main")
    assert "solver 6 pairs" in shown and "solver succeeds only after: 4 episodes" in shown
    before, after = ("first", "second") if "run=first" in tab.url else ("second", "first")
    tab.click(".flips >> nth=0 >> text=before >> nth=0")
    tab.wait_for_selector(".turn")
    assert f"run={before}" in tab.url
    tab.go_back()
    tab.click(".flips >> nth=0 >> text=after >> nth=0")
    tab.wait_for_selector(".turn")
    assert f"run={after}" in tab.url
    tab.go_back()
    tab.click(".flips li a >> nth=0")
    tab.wait_for_selector(".pair .pane >> nth=1")


def test_an_evaluation_by_grade_task_and_reason(runs: Path, show: Callable[..., Page]) -> None:
    page = show(runs)
    tab = page.go("#/run?run=first")
    tab.wait_for_selector(".rows .row >> nth=5")
    shown = tab.inner_text("main")
    for part in ("Trivial baselines on the same tasks: lazy 33.3%", "pass^k of solver", "By grade: success rate"):
        assert part in shown
    assert "wrong sum" in tab.inner_text(".rows") and "hard" in tab.inner_text(".rows")
    tab.click("button.chip >> text=hard")
    tab.wait_for_selector("text=4 of 6 episodes")
    tab.click("text=Clear filters")
    tab.wait_for_selector("text=/^6 episodes/")
    tab.select_option("select[aria-label=reason]", index=1)
    tab.wait_for_selector("text=4 of 6 episodes")
    tab.fill("input[aria-label=task]", "2")
    tab.wait_for_selector("text=2 of 6 episodes")
    assert "reason=wrong+sum" in tab.url and "task=2" in tab.url
    tab.click("details.tasks summary")
    tab.click("button.task >> nth=0")
    tab.wait_for_selector("text=No episode fits these filters.")


def test_a_grid_is_a_table_whose_cells_open_their_episodes(runs: Path, show: Callable[..., Page]) -> None:
    page = show(runs / "grid")
    tab = page.go()
    tab.wait_for_selector("td.cell >> nth=1")
    assert [cell.split()[0] for cell in tab.locator("td.cell").all_inner_texts()] == ["33.3%", "66.7%"]
    tab.click("td.cell a >> nth=1")
    tab.wait_for_selector(".rows .row >> nth=2")
    assert "02_good" in tab.inner_text("h1")


def test_a_list_is_kept_up_to_date(tmp_path: Path, show: Callable[..., Page]) -> None:
    page = show(tmp_path)
    tab = page.go()
    tab.wait_for_selector("text=There is no run in")
    for name in ("one", "two"):
        write_run(tmp_path / name, [episode(0)])
    tab.wait_for_selector("tr[data-name=two] td.score >> text=0.0%")
    tab.check("tr[data-name=one] input")
    with (tmp_path / "two" / "episodes.jsonl").open("a") as file:
        file.write(to_json(episode(1)) + "\n")
    tab.wait_for_selector("tr[data-name=two] td[data-label=episodes] >> text=2")
    assert tab.is_checked("tr[data-name=one] input"), "what is ticked stays"


def test_fifty_agents_are_counted_by_role(tmp_path: Path, show: Callable[..., Page]) -> None:
    agents = [f"{role}_{number}" for role in ("villager", "wolf") for number in range(25)]
    returns = {agent: float(agent.startswith("wolf")) for agent in agents}
    models = dict.fromkeys(agents, "a-language-model-with-a-long-name")
    turns = tuple(Turn(agent, "?", Response("!")) for agent in agents)
    many = [episode(n, turns=turns, returns=returns, models=models, final_infos={}, zero_sum=False) for n in range(3)]
    write_run(tmp_path / "run", many)
    for width in (390, 1400):
        tab = show(tmp_path, viewport={"width": width, "height": 800}).go()
        tab.wait_for_selector(".rows .row >> nth=2")
        assert fits(tab)
        assert "25 of 25" in tab.inner_text(".rows .row >> nth=0") and "0 of 25" in tab.inner_text(
            ".rows .row >> nth=0"
        )
        cards = tab.locator(".card").all_inner_texts()
        assert len(cards) == 2 and "wolf × 25" in cards[1] and "100.0% solved" in cards[1]


@pytest.mark.parametrize("width", [390, 1400])
def test_every_table_fits_into_its_window(runs: Path, show: Callable[..., Page], width: int) -> None:
    page = show(runs, viewport={"width": width, "height": 800})
    for address, ready in [
        ("#/?all=1&group=1", "tr.group"),
        ("#/run?run=first", ".rows .row >> nth=5"),
        ("#/run?run=grid", "td.cell"),
        ("#/run?run=tournament", ".rows .row >> nth=5"),
        ("#/run?run=broken", ".errorbox"),
        ("#/comparison?run=first&run2=second", ".flips"),
    ]:
        tab = page.go(address)
        tab.wait_for_selector(ready)
        assert fits(tab), address
        if ".row" in ready:
            assert tab.evaluate(CUT) == [], address


def test_hostile_reports_are_shown_as_text(tmp_path: Path, show: Callable[..., Page]) -> None:
    nasty = HOSTILE.replace("\ud800", "")
    policies = [answering(nasty, "yes", "no", "no"), answering(f"{nasty}2", "no", "no", "no")]
    evaluated(tmp_path / "a", policies)
    evaluated(tmp_path / "b", policies)
    page = show(tmp_path)
    for address, ready in [
        ("#/?all=1&text=b", ".runs a.name >> nth=1"),
        ("#/run?run=a", "td.cell"),
        ("#/comparison?run=a&run2=b", ".stats"),
    ]:
        tab = page.go(address)
        tab.wait_for_selector(ready)
        assert tab.evaluate("window.hacked") is None
        assert tab.evaluate("document.querySelectorAll('main script, main style, main [onerror]').length") == 0
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), address


def test_a_large_library_is_listed_in_parts(tmp_path: Path, show: Callable[..., Page]) -> None:
    for number in range(230):
        write_run(tmp_path / f"run-{number:03}", [episode(0)])
    page = show(tmp_path)
    tab = page.go("#/?all=1&sort=name")
    tab.wait_for_selector("text=230 runs")
    assert len(names(tab)) == 200
    tab.click("text=Show 30 more")
    assert len(names(tab)) == 230 and names(tab)[-1] == "run-229"
