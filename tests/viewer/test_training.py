"""The curves of training runs, in a browser."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from marl_gem.runs.library import RunLibrary
from marl_gem.viewer.api import Api
from marl_gem.viewer.curves import curves
from tests.viewer.recorded import HOSTILE, Page, episode, write_run


def row(update: int, **values: Any) -> dict[str, Any]:
    stage = "training" if update else "before"
    return {"update": update, "stage": stage, "seconds": 1.0, "episodes": 4 + 2 * update, **values}


def measured(update: int) -> dict[str, Any]:
    score = 0.4 + update / 100
    return {"score": score, "score_interval": [score - 0.1, score + 0.1]} if update % 5 == 0 else {}


def learned(update: int, **values: Any) -> dict[str, Any]:
    returns = {"return/player_0": update / 10, "return/player_1": -update / 10}
    pool = {"win_rate/policy/policy@0": 0.5, "win_rate/policy/policy@10": 0.4}
    rest = {"loss": 1 / update, "kl": 0.01, "entropy": 1.0, "illegal": 0.0, "tokens": 30, "turns": 10, "mfu": 0.4}
    return row(update, **returns, **pool, **rest, **measured(update), **values)


def training_run(folder: Path, updates: int = 20, **config: Any) -> Path:
    write_run(folder, [episode(n) for n in range(4 + 2 * updates)], training={"updates": 40}, **config)
    append(folder, [row(0, **measured(0)), *(learned(update) for update in range(1, updates + 1))])
    (folder / "checkpoints" / "update-000020").mkdir(parents=True)
    return folder


def append(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(values) + "\n" for values in rows)


def titles(tab: Any) -> list[str]:
    return [figure.get_attribute("data-title") for figure in tab.locator("main > .curves .curve").all()]


def colours(picture: bytes) -> set[tuple[int, int, int]]:
    """The colours in a PNG of 8 bits a channel, by undoing its filters."""
    data, position = b"", 8
    width, height, channels = int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24]), 3 + (picture[25] == 6)
    while position < len(picture):
        size = int.from_bytes(picture[position : position + 4])
        if picture[position + 4 : position + 8] == b"IDAT":
            data += picture[position + 8 : position + 8 + size]
        position += size + 12
    data, stride = zlib.decompress(data), width * channels
    above, found = bytearray(stride), set()
    for line in range(height):
        start = line * (stride + 1)
        kind, now = data[start], bytearray(data[start + 1 : start + 1 + stride])
        for index in range(stride):
            left = now[index - channels] if index >= channels else 0
            up, corner = above[index], above[index - channels] if index >= channels else 0
            estimate = left + up - corner
            nearest = min((left, up, corner), key=lambda value: abs(value - estimate))
            now[index] = (now[index] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
        found |= {tuple(now[index : index + 3]) for index in range(0, stride, channels)}
        above = now
    return found  # type: ignore[return-value]


def test_from_the_list_to_curves_to_an_episode(tmp_path: Path, show: Callable[..., Page]) -> None:
    training_run(tmp_path / "first")
    write_run(tmp_path / "evaluation", [episode(0)])
    page = show(tmp_path)
    tab = page.go()
    assert tab.locator(".runs td.title a >> text=curves").count() == 1, "an evaluation has no curves"
    tab.click(".runs td.title a >> text=curves")
    tab.wait_for_selector(".curve >> nth=7")
    expected = ["score", "mean return of each agent", "loss", "divergence from the reference (nats)"]
    assert titles(tab)[:4] == expected and len(titles(tab)) == 8
    assert "update 20 of 40" in tab.inner_text(".run-line") and "checkpoints: @20" in tab.inner_text(".run-line")
    score, returns, *_, pool = tab.locator("main > .curves .curve").all()
    assert "0.6 (0.5 to 0.7)" in score.inner_text() and score.locator("path.band").count() == 1
    assert returns.locator("g.line").count() == 2 and "player_1 −2" in returns.inner_text()
    assert "policy/policy@10 0.4" in pool.inner_text()
    assert "tokens an answer" in titles(tab) and "update 20: 3" in tab.inner_text("[data-title='tokens an answer']")
    tab.click("details.more summary")
    tab.wait_for_selector("details.more .curve[data-title=mfu]")
    drawing = returns.locator("svg")
    box = drawing.bounding_box()
    middle = {"x": box["width"] * 0.51, "y": box["height"] / 2}
    drawing.hover(position=middle)
    at = int(returns.locator("figcaption").inner_text().removeprefix("update ").partition(":")[0])
    assert at in (9, 10)
    drawing.click(position=middle)
    tab.wait_for_selector(".rows .row.selected")
    assert f"at={4 + 2 * (at - 1) + 1}" in tab.url, "the first episode that was kept of this update"
    tab.click("text=Curves")
    tab.wait_for_selector(".curve")


def test_a_run_that_goes_on_is_drawn_anew(tmp_path: Path, show: Callable[..., Page]) -> None:
    folder = training_run(tmp_path / "run", updates=3)
    page = show(folder)
    tab = page.go("#/training?run=run")
    tab.wait_for_selector("text=update 3 of 40")
    append(folder, [learned(update) for update in range(4, 8)])
    tab.wait_for_selector("text=update 7 of 40")
    assert "not ended" in tab.inner_text(".run-line") and "update 7:" in tab.inner_text("[data-title=loss]")
    (folder / "report.json").write_text('{"seconds": 3}')
    tab.wait_for_selector(".badge:not(.warn) >> text=ended")


def test_several_runs_lie_over_one_another(tmp_path: Path, show: Callable[..., Page]) -> None:
    for name in ("a", "b", "c"):
        training_run(tmp_path / name, updates=6)
    page = show(tmp_path)
    tab = page.go()
    for name in ("a", "c"):
        tab.check(f"input[value={name}]")
    tab.click("text=Curves of 2 runs")
    tab.wait_for_selector(".run-line >> nth=1")
    assert tab.url.endswith("#/training?run=a&run=c") or tab.url.endswith("#/training?run=c&run=a")
    returns = tab.locator("[data-title='mean return of each agent']")
    assert returns.locator("g.line").count() == 4 and "a player_0" in returns.inner_text()
    strokes = {
        line.evaluate("(line) => getComputedStyle(line.querySelector('path')).stroke")
        for line in returns.locator("g.line").all()
    }
    assert len(strokes) == 2, "a colour for each run"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_can_be_read_on_any_screen(tmp_path: Path, show: Callable[..., Page], scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    page = show(training_run(tmp_path / "run"), color_scheme=scheme, viewport=size)
    tab = page.go("#/training?run=run")
    tab.wait_for_selector(".curve >> nth=7")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    figure = tab.locator("[data-title='mean return of each agent']")
    assert figure.bounding_box()["width"] > 300
    text = figure.locator("svg text").first
    assert text.bounding_box()["height"] >= 8, "the numbers at the axis"
    shown = colours(figure.screenshot())
    names = ("--c0", "--c1", "--panel")
    wanted = [figure.evaluate(f"(f) => {{ const e = document.createElement('i'); e.style.color = 'var({n})'; "
              "f.append(e); const c = getComputedStyle(e).color; e.remove(); return c }") for n in names]  # fmt: skip
    for colour in wanted:
        channels = tuple(int(part) for part in colour.strip("rgb()").split(","))
        assert any(max(abs(a - b) for a, b in zip(channels, other, strict=True)) < 24 for other in shown), colour


def test_a_hostile_run_is_drawn_as_text(tmp_path: Path, show: Callable[..., Page]) -> None:
    folder = write_run(tmp_path / "run", [episode(0)], training={"updates": HOSTILE}, phases=[{"start": HOSTILE}, 5])
    nasty = {HOSTILE: 1, f"return/{HOSTILE}": 2.0, f"loss/{HOSTILE}": 1e308, "entropy": HOSTILE, "kl": {"x": 1}}
    nasty |= {"score": True, "score_interval": [HOSTILE, 1], "__proto__/x": 1, "constructor": 2, "illegal": -1e299}
    append(
        folder, [row(0), row(1, **nasty), row(2, **nasty), {"update": HOSTILE, "stage": [HOSTILE]}, {"update": 1e300}]
    )
    append(folder, [row(3, **{f"m{n}/{m}": n for n in range(220) for m in range(3)})])
    page = show(folder)
    tab = page.go("#/training?run=run")
    tab.wait_for_selector(".curve")
    tab.click("details.more summary")
    tab.wait_for_selector("details.more .curve >> nth=100")
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.querySelectorAll('main script, main img, main [onerror]').length") == 0
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_run_has_few_points() -> None:
    rows = [learned(update) for update in range(1, 1001)]
    found = curves(rows, {})
    loss = found.series["loss"][""]
    assert found.rows_a_point == 3 and len(loss) == 334 and loss[-1][0] == 1000
    assert loss[0] == (3, pytest.approx((1 + 1 / 2 + 1 / 3) / 3))
    assert len(found.series["score"][""]) == 200, "measured now and then: as it is"


def test_the_last_measurement_of_an_update_is_its_point() -> None:
    """After the last update a run is probed, and then measured with more episodes."""
    rows = [row(0, **measured(0)), learned(5), row(5, score=0.7, score_interval=[0.6, 0.8])]
    found = curves(rows, {})
    assert found.series["score"][""] == [(0, 0.4), (5, 0.7)]
    assert found.intervals == [(0, pytest.approx(0.3), 0.5), (5, 0.6, 0.8)]


def test_the_warm_start_and_rows_of_older_runs() -> None:
    rows: list[dict[str, Any]] = [
        {"update": 0, "phase": "warm-up", "step": 10, "loss": 2.0, "episodes": 0},
        {"update": 0, "phase": "before", "score": 0.9, "first_score": 0.2, "episodes": 3},
        {"update": 1, "phase": "self-play", "divergence/user": 0.5, "loss": 1.0, "games": 4, "episodes": 5},
    ]
    found = curves(rows, {"training": {"updates": 9}, "phases": [{"start": 4}]})
    assert found.series["imitation_loss"] == {"": [(10, 2.0)]} and found.series["kl"] == {"user": [(1, 0.5)]}
    assert found.series["score"] == {"": [(0, 0.2)]}, "the seating that is trained first"
    assert (found.planned, found.phases, found.episodes) == (9, [4], [(0, 1, 3), (1, 4, 2)])


def test_an_answer_that_is_known_is_not_sent_again(tmp_path: Path) -> None:
    folder = training_run(tmp_path / "run", updates=3)
    api = Api(RunLibrary(folder))
    first = api.curves({"run": ["run"]})
    assert api.curves({"run": ["run"], "stamp": [first["stamp"]]}) == {"stamp": first["stamp"]}
    append(folder, [learned(4)])
    assert api.curves({"run": ["run"], "stamp": [first["stamp"]]})["updates"] == 4
    with pytest.raises(Exception, match=r"is no training run: it has no metrics\.jsonl"):
        Api(RunLibrary(write_run(tmp_path / "other", [episode(0)]))).curves({"run": ["other"]})


def test_runs_from_several_folders(tmp_path: Path) -> None:
    training_run(tmp_path / "x" / "one", updates=2)
    training_run(tmp_path / "y" / "two", updates=2)
    training_run(tmp_path / "y" / "three", updates=2)
    assert set(RunLibrary(tmp_path / "x" / "one", tmp_path / "y" / "two").runs()) == {"x/one", "y/two"}
