"""The pictures of a report: bars with intervals, pass^k curves, heat maps."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
    with matplotlib.rc_context(_STYLE):
        for name, figure in (draw(report) if draw else {}).items():
            _note_baselines(figure, report)
            file = io.BytesIO()
            figure.savefig(file, format="png", dpi=144, metadata={"Software": None})
            drawn[name] = file.getvalue()
    return drawn


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
        "bars.png": _bars([_short(row) for row in rows], by_column, title, f"{subtitle}, by {row_agents}", column),
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
    legend: str = "",
    middle: float | None = None,
) -> Figure:
    """A group of bars for each label, with the 95% interval as a line, all from 0 to 1."""
    figure, axes = _figure(max(4.5, 1.5 + len(labels) * (0.5 + 0.45 * len(series))), 3.6, title, subtitle)
    width = 0.8 / len(series) if len(series) > 1 else 0.55
    for number, (name, estimates) in enumerate(series.items()):
        colour = SERIES[number % len(SERIES)]
        axes.bar([0], [0], 0, color=colour, label=_clean(_short(name)))  # for the legend, also if nothing is known
        offset = (number - (len(series) - 1) / 2) * width
        for index, estimated in enumerate(estimates):
            if estimated is None:
                continue
            x, mean, low = index + offset, estimated.mean, estimated.low
            axes.bar(x, mean, width * 0.92, color=colour)
            top = mean if estimated.high is None else estimated.high
            if low is not None:
                axes.plot([x] * 2, [low, top], color=INK, linewidth=1.2, solid_capstyle="butt")
            where = (x, top)
            share = f"{100 * mean:.0f}%"
            axes.annotate(share, where, (0, 3), textcoords="offset points", ha="center", fontsize=9)
    if middle is not None:
        axes.axhline(middle, color="0.5", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0.5)
    _shares(axes)
    axes.set(ylim=(0, 1.08))
    _names(axes, labels)
    if len(series) > 1:
        axes.legend(title=_clean(legend), frameon=False, loc="upper left", bbox_to_anchor=(1, 1), alignment="left")
    return figure


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
    width, height = max(4.5, 1.2 + margin + len(columns)), max(2.6, 1.4 + margin / 3 + 0.7 * len(rows))
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
    _names(axes, [_short(name) for name in columns])
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


def _shares(axes: Axes) -> None:
    axes.set_yticks((0, 0.25, 0.5, 0.75, 1), ["0%", "25%", "50%", "75%", "100%"])
    axes.grid(axis="y", color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _names(axes: Axes, labels: Sequence[str]) -> None:
    """Names along the x axis; turned if there is no room for them."""
    longest = max(len(line) for label in labels for line in label.split("\n"))
    turned: dict[str, Any] = {"rotation": 25, "ha": "right"} if longest > 14 and len(labels) > 1 else {}
    axes.set_xticks(range(len(labels)), [_clean(label) for label in labels], **turned)


def _short(label: str, length: int = 28) -> str:
    """A label that fits beside others; a long one keeps its beginning and its end."""
    return label if len(label) <= length else f"{label[: length // 2 - 1]}…{label[-(length // 2) :]}"


def _clean(label: str) -> str:
    return printable(label).replace("\t", " ")
