"""Draw a turn order.

    draw(env.selector, "turns.png")

The nodes lie on an ellipse, so that no straight edge runs through a third node. All lengths are in inches.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from marl_gem.errors import MissingPackage, SelectorError
from marl_gem.selectors.base import AgentSelector, DiGraph
from marl_gem.selectors.graph import END

Node: TypeAlias = Any
Edge: TypeAlias = tuple[Node, Node]
Point: TypeAlias = tuple[float, float]
Size: TypeAlias = tuple[float, float]
Curve: TypeAlias = Sequence[Point]
"""The control points of a Bezier curve."""

INK, FILL, FAINT, PAPER = "#24344d", "#e6eefa", "#66748a", "white"
DPI = 150
WRAP = 28
"""Characters in a line of text."""
PADDING, MARGIN = 0.13, 0.25
GAP = 0.8
"""The least distance between two boxes."""
BEND = 0.17
"""How far an edge bends if there is one in the other direction, as a fraction of its length."""
REACH = 0.5
"""The length of a loop, and of the arrow to the start."""


class Box(NamedTuple):
    """A rectangle around a point."""

    x: float
    y: float
    width: float
    height: float

    def grown(self, by: float) -> Box:
        return self._replace(width=self.width + 2 * by, height=self.height + 2 * by)

    def border(self, angle: float) -> Point:
        """The point where the ray from the center at this angle (in radians) leaves the box."""
        dx, dy = math.cos(angle), math.sin(angle)
        length = 1 / max(2 * abs(dx) / self.width, 2 * abs(dy) / self.height)
        return self.x + length * dx, self.y + length * dy

    def overlap(self, other: Box) -> float:
        """The area that the two have in common."""
        width = (self.width + other.width) / 2 - abs(self.x - other.x)
        height = (self.height + other.height) / 2 - abs(self.y - other.y)
        return max(width, 0.0) * max(height, 0.0)

    def contains(self, point: Point) -> bool:
        return abs(point[0] - self.x) <= self.width / 2 and abs(point[1] - self.y) <= self.height / 2


def draw(selector: AgentSelector, path: str | Path, agents: Sequence[str] | None = None) -> None:
    """Draw which agent may act after which, and write it as a PNG.

    A dot leads to the agents that act first. Dashed edges are followed only if no other edge out of their node is.

    Args:
        selector: its `graph` is drawn.
        path: of the PNG.
        agents: the ids of the agents that take part; by default those in the selector's episode.

    Raises:
        MissingPackage: matplotlib or networkx is not installed.
        SelectorError: there are no agents to draw.
    """
    graph = selector.graph(tuple(getattr(selector, "order", ()) if agents is None else agents))
    if not graph:
        raise SelectorError(
            "there are no agents to draw; reset the env first, or name them: draw(..., agents=['a', 'b'])"
        )
    sheet = _Sheet()
    texts = {node: [sheet.write(node, 11, weight="bold", color=PAPER if node is END else INK)] for node in graph}
    for node, note in graph.nodes(data="note", default=""):
        texts[node] += [sheet.write(note, 8.5, color=FAINT)] if note else []
    edges = _edges(graph)
    words = {edge: graph.edges[edge].get("label") for edge in edges}
    labels = {edge: sheet.write(label, 8.5, color=INK) for edge, label in words.items() if label}
    label_sizes = {edge: sheet.size(label) for edge, label in labels.items()}

    boxes = _lay_out(graph, {node: sheet.size(*texts[node]) for node in graph}, label_sizes)
    curves = {edge: _curve(boxes, edge, bend=BEND if edge[::-1] in edges else 0.0) for edge in edges}
    for edge, both_ways in edges.items():
        sheet.arrow(curves[edge], both_ways, dashed=graph.edges[edge].get("dashed", False))
    for edge, position in _label_positions(label_sizes, curves, boxes).items():
        sheet.label(labels[edge], position)
    for node, box in boxes.items():
        sheet.box(box, texts[node], dark=node is END)
        if graph.nodes[node].get("start"):
            sheet.start(_start_curve(boxes, node))
    sheet.save(path, graph.graph.get("title", ""))


def _edges(graph: DiGraph) -> dict[Edge, bool]:
    """The edges to draw, and whether each stands for both directions, because they look the same."""
    edges: dict[Edge, bool] = {}
    for (a, b), looks in graph.edges.items():
        both_ways = a != b and graph.edges.get((b, a)) == looks
        if not both_ways or (b, a) not in edges:
            edges[a, b] = both_ways
    return edges


def _lay_out(graph: DiGraph, sizes: Mapping[Node, Size], labels: Mapping[Edge, Size]) -> dict[Node, Box]:
    """Put the nodes on the smallest ellipse that leaves room between them, clockwise from the top."""
    nodes = _in_order(graph)
    first = math.pi if len(nodes) == 2 else math.pi / 2
    angles = [first - 2 * math.pi * index / len(nodes) for index in range(len(nodes))]
    radius = 0.0
    while True:
        boxes = {
            node: Box(1.3 * radius * math.cos(angle), radius * math.sin(angle), *sizes[node]).grown(PADDING)
            for node, angle in zip(nodes, angles, strict=True)
        }
        if all(_have_room(boxes, labels, edge) for edge in combinations(nodes, 2)):
            return boxes
        radius += 0.05


def _in_order(graph: DiGraph) -> list[Node]:
    """The nodes in the order in which they are reached from the start, END last."""
    nodes = [node for node, start in graph.nodes(data="start") if start]
    for node in nodes:  # which grows meanwhile
        nodes += [after for after in graph.successors(node) if after not in nodes]
    nodes += [node for node in graph if node not in nodes]
    return sorted(nodes, key=lambda node: node is END)


def _have_room(boxes: Mapping[Node, Box], labels: Mapping[Edge, Size], edge: Edge) -> bool:
    """Whether two boxes keep the least distance, and labels fit between them."""
    source, target = boxes[edge[0]], boxes[edge[1]]
    if source.grown(GAP / 2).overlap(target.grown(GAP / 2)):
        return False
    angle = math.atan2(target.y - source.y, target.x - source.x)
    between = math.dist(source.border(angle), target.border(angle + math.pi))
    sizes = [labels.get(way, (0.0, 0.0)) for way in (edge, edge[::-1])]
    width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
    return between > abs(math.cos(angle)) * width + abs(math.sin(angle)) * height + 0.5


def _curve(boxes: Mapping[Node, Box], edge: Edge, bend: float) -> Curve:
    """The curve of an edge, from border to border."""
    source, target = (boxes[node].grown(0.04) for node in edge)
    if edge[0] == edge[1]:  # a loop at the right side, or at the left one
        side = -1 if source.x < -0.01 else 1
        x, y, height = source.x + side * source.width / 2, source.y, source.height / 4
        far = x + side * 2 * REACH
        return [(x, y + height), (far, y + 3.5 * height), (far, y - 3.5 * height), (x, y - height)]
    dx, dy = target.x - source.x, target.y - source.y
    x, y = (source.x + target.x) / 2 - bend * dy, (source.y + target.y) / 2 + bend * dx
    first, last = (box.border(math.atan2(y - box.y, x - box.x)) for box in (source, target))
    return [first, (x, y), last]


def _start_curve(boxes: Mapping[Node, Box], node: Node) -> Curve:
    """The arrow to a start, from the outside."""
    box = boxes[node].grown(0.04)
    outward = math.atan2(box.y, box.x) if len(boxes) > 1 else math.pi
    x, y = box.border(outward)
    return [(x + REACH * math.cos(outward), y + REACH * math.sin(outward)), (x, y)]


def _label_positions(
    labels: Mapping[Edge, Size], curves: Mapping[Edge, Curve], boxes: Mapping[Node, Box]
) -> dict[Edge, Point]:
    """The position on its edge where each label covers the least of everything else."""
    positions: dict[Edge, Point] = {}
    taken = list(boxes.values())
    for edge, size in labels.items():
        others = [_at(curve, step / 40) for other, curve in curves.items() if other != edge for step in range(41)]
        spots = [_at(curves[edge], part / 20) for part in (10, 9, 11, 8, 12, 7, 13, 6, 14)]
        areas = [Box(*spot, *size) for spot in spots]
        best = min(areas, key=lambda area: 40 * sum(map(area.overlap, taken)) + sum(map(area.contains, others)))
        positions[edge] = (best.x, best.y)
        taken.append(best.grown(0.04))
    return positions


def _at(curve: Curve, part: float) -> Point:
    """The point at a fraction, from 0 to 1, of a Bezier curve, by de Casteljau's algorithm."""
    points = list(curve)
    while len(points) > 1:
        points = [((1 - part) * a + part * c, (1 - part) * b + part * d) for (a, b), (c, d) in pairwise(points)]
    return points[0]


class _Sheet:
    """A matplotlib figure that does not touch pyplot's state."""

    def __init__(self) -> None:
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingPackage("matplotlib", "graph", "the picture of a turn order") from None
        self._figure = Figure(dpi=DPI, facecolor=PAPER)
        self._renderer = FigureCanvasAgg(self._figure).get_renderer()
        self._axes = self._figure.add_axes((0, 0, 1, 1))
        self._axes.set_axis_off()
        self._covered: list[Box] = []

    def write(self, words: object, size: float, **style: Any) -> Any:
        """A text that is positioned later."""
        clean = str(words).encode("utf-8", "replace").decode()
        style |= {"ha": "center", "va": "center", "parse_math": False, "zorder": 4}
        lines = "\n".join(textwrap.fill(line, WRAP) for line in clean.split("\n"))
        return self._axes.text(0, 0, lines, fontsize=size, **style)

    def size(self, *texts: Any) -> Size:
        """Width and height of texts, one below the other."""
        extents = [text.get_window_extent(self._renderer) for text in texts]
        return max(extent.width for extent in extents) / DPI, sum(extent.height for extent in extents) / DPI

    def label(self, text: Any, position: Point) -> None:
        """Put a label on an edge."""
        text.set_position(position)
        text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1.5})
        self._covered.append(Box(*position, *self.size(text)))

    def box(self, box: Box, texts: Sequence[Any], dark: bool) -> None:
        """Draw a box with these texts in it, one below the other."""
        from matplotlib.patches import FancyBboxPatch

        corner, shape = (box.x - box.width / 2, box.y - box.height / 2), "round,pad=0,rounding_size=0.1"
        fill = INK if dark else FILL
        self._axes.add_patch(FancyBboxPatch(corner, *box[2:], boxstyle=shape, fc=fill, ec=INK, lw=1.2, zorder=3))
        self._covered.append(box)
        top = box.y + self.size(*texts)[1] / 2
        for text in texts:
            height = self.size(text)[1]
            text.set_position((box.x, top - height / 2))
            top -= height

    def arrow(self, curve: Curve, both_ways: bool = False, dashed: bool = False) -> None:
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path as Line

        onward = {2: Line.LINETO, 3: Line.CURVE3, 4: Line.CURVE4}[len(curve)]
        line = Line(curve, [Line.MOVETO, *[onward] * (len(curve) - 1)])
        heads, dashes = "<|-|>" if both_ways else "-|>", (0, (4, 2.5)) if dashed else "solid"
        self._axes.add_patch(
            FancyArrowPatch(path=line, arrowstyle=heads, mutation_scale=11, color=INK, lw=1.2, ls=dashes, zorder=2)
        )
        self._covered += [Box(*_at(curve, step / 20), 0.0, 0.0) for step in range(21)]

    def start(self, curve: Curve) -> None:
        """A dot, and an arrow from it."""
        self.arrow(curve)
        self._axes.plot(*curve[0], marker="o", markersize=7, color=INK, zorder=3)

    def save(self, path: str | Path, title: str) -> None:
        """Fit the figure to its content, and write it."""
        words = self.write(title, 8.5, color=FAINT, style="italic")
        width, height = self.size(words)
        left, right = (sign * max(sign * box.x + box.width / 2 for box in self._covered) for sign in (-1, 1))
        low, high = (sign * max(sign * box.y + box.height / 2 for box in self._covered) for sign in (-1, 1))
        middle, wide = (left + right) / 2, max(right - left, width) / 2 + MARGIN
        words.set_position((middle, high + MARGIN + height / 2))
        self._axes.set_xlim(middle - wide, middle + wide)
        self._axes.set_ylim(low - MARGIN, high + height + 2 * MARGIN)
        self._figure.set_size_inches(2 * wide, high - low + height + 3 * MARGIN)
        self._figure.savefig(path, format="png", dpi=DPI)
