"""The pictures of a report: bars with intervals, pass^k curves, heat maps."""

from __future__ import annotations

import io
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from marl_gem.errors import MissingPackage
from marl_gem.evaluation.estimates import Estimate
from marl_gem.evaluation.markdown import baselines_text
from marl_gem.evaluation.report import AgentReport, Report
from marl_gem.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1a202c"
_STYLE = {
    "text.parse_math": False,  # a label may hold a $, which would begin a formula
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.constrained_layout.h_pad": 0.12,
}
FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP",
    "Source Han Sans SC", "Source Han Sans CN", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback",
    "PingFang SC", "Hiragino Sans GB", "Hiragino Sans", "Heiti TC", "Apple SD Gothic Neo", "Microsoft YaHei", "SimHei",
    "Yu Gothic", "Malgun Gothic", "Arial Unicode MS", "Unifont", "Noto Sans Arabic", "Noto Sans Hebrew",
    "Noto Sans Devanagari", "Noto Sans Thai",
)  # fmt: skip
"""Fonts for letters that matplotlib's own font lacks, most of all Chinese, Japanese and Korean ones; those that are
installed are used."""

SERIES = ("#2b6cb0", "#dd6b20", "#2f855a", "#6b46c1", "#b83280", "#718096")


def pictures(report: Report) -> dict[str, bytes]:
    """The PNGs that belong to a report, by file name.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackage("matplotlib", "eval", "drawing pictures") from error
    draw = {"eval": _evaluation, "grid": _grid, "tournament": _tournament}.get(report.kind)
    drawn: dict[str, bytes] = {}
    with matplotlib.rc_context({**_STYLE, "font.family": _fonts()}):
        for name, figure in (draw(report) if draw else {}).items():
            _note_baselines(figure, report)
            file = io.BytesIO()
            figure.savefig(file, format="png", dpi=144, metadata={"Software": None})
            drawn[name] = file.getvalue()
    return drawn


def _fonts() -> list[str]:
    """The fonts that letters are looked for in, one after the other."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ["DejaVu Sans", *(name for name in FONTS if name in installed)]


def _evaluation(report: Report) -> dict[str, Figure]:
    (match,) = report.matches
    agents = {agent: numbers for agent, numbers in match.agents.items() if numbers.success}
    if not agents:
        return {}
    title, subtitle = report.config.scenario, f"{report.measure}, {match.episodes} episodes"
    players = {agent: match.players[agent].label if agent in match.players else "" for agent in agents}
    labels = [f"{_short(agent)}\n{_short(label)}" for agent, label in players.items()]
    drawn = {"bars.png": _bars(labels, {"": [numbers.success for numbers in agents.values()]}, title, subtitle)}
    if any(numbers.pass_ for numbers in agents.values()):
        drawn["pass.png"] = _curves(agents, title)
    return drawn


def _grid(report: Report) -> dict[str, Figure]:
    grid, matches = report.grid, {match.name: match for match in report.matches}
    assert grid is not None  # of a grid
    column, rows, columns = grid.column_agent, grid.rows, grid.columns
    at = {cell: matches[name].agents[column].success for name, cell in grid.cells.items()}
    values = [[at[row, head] for head in columns] for row in rows]
    title, subtitle = report.config.scenario, f"{report.measure} of {column}"
    by_column = {head: [at[row, head] for row in rows] for head in columns}
    row_agents = ", ".join(grid.row_agents)
    return {
        "heatmap.png": _heat_map(values, rows, columns, (row_agents, column), "Blues", title, subtitle),
        "bars.png": _bars([_short(row) for row in rows], by_column, title, f"{subtitle}, by {row_agents}"),
    }


def _tournament(report: Report) -> dict[str, Figure]:
    tournament, title = report.tournament, report.config.scenario
    assert tournament is not None  # of a tournament
    names = [player.name for player in tournament.players]
    values = [[tournament.matrix[name].get(other) for other in names] for name in names]
    scores = [player.score for player in tournament.players]
    against = "score of the row's player against the column's"
    games = f"score over all games ({report.episodes.counted}); win 1, draw 1/2"
    return {
        "heatmap.png": _heat_map(values, names, names, ("", ""), "RdBu", title, against),
        "bars.png": _bars(names, {"": scores}, title, games, middle=0.5),
    }


def _bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[Estimate | None]],
    title: str,
    subtitle: str,
    middle: float | None = None,
) -> Figure:
    """Horizontal bars from 0 to 1, with the 95% interval as a line; of several series, a group for each label. The
    values stand in a column beside the bars, where no line crosses them."""
    rows = _rows(labels, series)
    longest = max(_width(line) for text, *_ in rows for line in text.split("\n"))
    lines = sum(text.count("\n") + 1 for text, *_ in rows)
    figure, axes = _figure(4.6 + 0.08 * longest, 1.4 + 0.1 * len(rows) + 0.2 * max(lines, 3), title, subtitle)
    for y, (_, colour, estimated) in enumerate(rows):
        if not colour:
            continue
        where = axes.get_yaxis_transform()
        axes.annotate(_value(estimated), (1, y), (8, 0), where, "offset points", va="center", fontsize=8.5)
        if estimated is None:
            continue
        axes.barh(y, estimated.mean, 0.7, color=colour)
        if estimated.low is not None and estimated.high is not None:
            ends = [estimated.low, estimated.high]
            axes.plot(ends, [y] * 2, color="white", linewidth=3.2, alpha=0.75)
            axes.plot(ends, [y] * 2, color=INK, linewidth=1.2, solid_capstyle="butt")
    if middle is not None:
        axes.axvline(middle, color="0.5", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0.5)
    _shares(axes, "x")
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.4, -0.6))  # the first row at the top
    axes.set_yticks(range(len(rows)), [_clean(text) for text, *_ in rows])
    for tick, (_, colour, _) in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_fontweight("normal" if colour else "bold")
    axes.tick_params(axis="y", length=0)
    axes.spines["bottom"].set_visible(False)
    return figure


def _rows(
    labels: Sequence[str], series: Mapping[str, Sequence[Estimate | None]]
) -> list[tuple[str, str, Estimate | None]]:
    """The name, colour and value of each bar from the top; a name without a colour is the heading of a group."""
    if len(series) == 1:
        (values,) = series.values()
        return [(label, SERIES[0], value) for label, value in zip(labels, values, strict=True)]
    rows: list[tuple[str, str, Estimate | None]] = []
    for index, label in enumerate(labels):
        rows += [(label, "", None)] if label else []  # of a grid with one row there is none
        for number, (name, values) in enumerate(series.items()):
            rows.append((_short(name), SERIES[number % len(SERIES)], values[index]))
    return rows


def _value(estimated: Estimate | None) -> str:
    """A share and its interval in figures."""
    if estimated is None:
        return "–"
    interval = (
        ""
        if estimated.low is None or estimated.high is None
        else f"  {100 * estimated.low:.0f}–{100 * estimated.high:.0f}"
    )
    return f"{100 * estimated.mean:.1f}%{interval}"


def _curves(agents: Mapping[str, AgentReport], title: str) -> Figure:
    """pass^k falls and pass@k rises with k, each with its interval as a band."""
    figure, axes = _figure(5.4, 3.6, title, "pass@k: at least one of k tries succeeds; pass^k: all do")
    drawn: list[Any] = []
    for numbers in agents.values():
        drawn += [numbers.pass_] if numbers.pass_ and numbers.pass_ not in drawn else []
    for number, per_k in enumerate(drawn):
        called = ", ".join(agent for agent, numbers in agents.items() if numbers.pass_ == per_k)
        colour, ks = SERIES[number % len(SERIES)], [at_k.k for at_k in per_k]
        for key, name, style in (("at", "pass@k", "--"), ("hat", "pass^k", "-")):
            points = [getattr(at_k, key) for at_k in per_k]
            label = _clean(f"{name}  {called}" if len(drawn) > 1 else name)
            means = [point.mean for point in points]
            axes.plot(ks, means, style, color=colour, marker="o", markersize=4, label=label)
            if all(point.low is not None for point in points):
                low, high = ([getattr(point, bound) for point in points] for bound in ("low", "high"))
                axes.fill_between(ks, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.set_xticks(ks if len(ks) <= 12 else ks[:: len(ks) // 8])
    _shares(axes)
    axes.set(ylim=(0, 1.02), xlabel="k")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _heat_map(
    values: Sequence[Sequence[Estimate | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    axis_names: tuple[str, str],
    colours: str,
    title: str,
    subtitle: str,
) -> Figure:
    """Shares from 0 to 1 as a coloured table; each field has its mean and its interval in figures."""
    margin = 0.09 * max(len(_short(name)) for name in (*rows, *columns))
    width, height = max(4.5, 1.2 + margin + 1.25 * len(columns)), max(2.6, 1.4 + margin / 3 + 0.7 * len(rows))
    figure, axes = _figure(width, height, title, subtitle)
    means = [[float("nan") if estimated is None else estimated.mean for estimated in row] for row in values]
    axes.set_facecolor("#edf2f7")  # of fields without a value
    image = axes.imshow(means, cmap=colours, vmin=0, vmax=1, aspect="auto")
    for y, row in enumerate(values):
        for x, estimated in enumerate(row):
            if estimated is None:
                continue
            mean, low, high = estimated.mean, estimated.low, estimated.high
            red, green, blue, _ = image.cmap(mean)
            ink = "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else INK
            interval = "" if low is None or high is None else f"{100 * low:.0f}–{100 * high:.0f}"
            for text, lower, size in ((f"{100 * mean:.1f}%", -1, 11), (interval, -13, 7.5)):
                axes.annotate(
                    text, (x, y), (0, lower), textcoords="offset points", ha="center", color=ink, fontsize=size
                )
    wrapped = [textwrap.fill(_clean(_short(name)), 17) for name in columns]
    axes.set_xticks(range(len(columns)), wrapped)
    axes.set_yticks(range(len(rows)), [_clean(_short(name)) for name in rows])
    axes.set_ylabel(_clean(axis_names[0]), fontweight="bold")
    axes.set_xlabel(_clean(axis_names[1]), fontweight="bold")
    axes.set_xticks([column + 0.5 for column in range(len(columns) - 1)], minor=True)
    axes.set_yticks([row + 0.5 for row in range(len(rows) - 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    return figure


def _figure(width: float, height: float, title: str, subtitle: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(min(width, 24), min(height, 24)), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_clean(_short(title, 60)), loc="left", fontsize=11, fontweight="bold", pad=20)
    axes.annotate(
        _clean(_short(subtitle, 70)), (0, 1), (0, 7), "axes fraction", "offset points", fontsize=9, color="#4a5568"
    )
    return figure, axes


def _note_baselines(figure: Figure, report: Report) -> None:
    """A line at the bottom with the scenario's trivial baselines, to compare with."""
    if text := baselines_text(report):
        letters = int(figure.get_figwidth() * 16)  # as many as fit in a line
        shares = text.replace(" ", "\xa0").replace(",\xa0", ", ")  # a name stays with its share
        note = textwrap.fill(_clean(f"Trivial baselines on the same tasks: {shares}"), letters, break_on_hyphens=False)
        figure.supxlabel(note, x=0.02, ha="left", fontsize=8, color="#4a5568")


def _shares(axes: Axes, axis: Literal["x", "y"] = "y") -> None:
    set_ticks = axes.set_xticks if axis == "x" else axes.set_yticks
    set_ticks((0, 0.25, 0.5, 0.75, 1), ["0%", "25%", "50%", "75%", "100%"])
    axes.grid(axis=axis, color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis=axis, length=0)
    if axis == "y":
        axes.spines["left"].set_visible(False)


def _width(text: str) -> int:
    """The width of a text in letters; those of East Asian scripts are two wide."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _short(label: str, length: int = 28) -> str:
    """A label that fits beside others; a long one keeps its beginning and its end."""
    return label if len(label) <= length else f"{label[: length // 2 - 1]}…{label[-(length // 2) :]}"


def _clean(label: str) -> str:
    return printable(label).replace("\t", " ")
