// A chart of lines over the updates of training runs.

import { h, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [420, 190, 48, 12, 10, 24];
const NAMED = 12; // more lines than this are not all named

/**
 * The chart. A line is { name, kind, points: [[x, y], ...], band: [[x, low, high], ...] }, `kind` its classes.
 * `range` are the lowest and highest y that are always shown, `start` is the first x. `go(line, x)` is called with what is clicked.
 */
export function lineChart({ title, unit, lines, range, start = 0, marks = [], go }) {
  const xs = lines.flatMap((line) => line.points.map(([x]) => x));
  const [from, to] = [Math.min(start, ...xs), Math.max(start + 1, ...xs)];
  const x = scale(from, to, LEFT, WIDTH - RIGHT);
  const [low, high] = bounds(lines, range);
  const y = scale(low, high, HEIGHT - BOTTOM, TOP);
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
  const caption = h("figcaption", { class: "muted small" });
  const chart = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title || lines.map((line) => line.name).join(", ")} over ${unit}s` },
    ticks(low, high).map((value) => [
      svg("line", { class: value === 0 ? "zero" : "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)),
    ]),
    marks.map((at) => svg("line", { class: "phase", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM })),
    svg("text", { x: LEFT, y: HEIGHT - 5 }, number(from)),
    svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, `${unit} ${number(to)}`),
    lines.map((line) => svg("g", { class: `line ${line.kind}` }, band(line, x, y), path(line, x, y))),
    cursor,
  );

  function mark(at) {
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    const parts = lines
      .map((line) => [line, before(line.points, at)])
      .filter(([, point]) => point)
      .map(([line, point]) => [
        line.name && h("span", { class: `agent ${line.kind}` }, line.name),
        ` ${number(point[1])}${interval(line, point[0])}`,
      ]);
    caption.replaceChildren(`${unit} ${number(at)}: `, ...parts.slice(0, NAMED).flatMap(separated));
    if (parts.length > NAMED) caption.append(`, and ${parts.length - NAMED} more`);
  }

  const nearest = (event) => {
    const box = chart.getBoundingClientRect();
    const at = x.inverse(((event.clientX - box.left) / box.width) * WIDTH);
    return xs.reduce((best, other) => (Math.abs(other - at) < Math.abs(best - at) ? other : best), xs[0]);
  };
  chart.addEventListener("pointermove", (event) => mark(nearest(event)));
  chart.addEventListener("pointerdown", (event) => mark(nearest(event)));
  if (go) chart.addEventListener("click", (event) => go(nearest(event)));
  mark(Math.max(...xs));
  return h("figure", { class: "chart curve", "data-title": title }, title && h("h2", {}, title), chart, caption);
}

const separated = (parts, index) => [index ? ", " : "", ...parts.filter(Boolean)];

/** A linear scale from [from, to] to [start, end], and its inverse. */
function scale(from, to, start, end) {
  const map = (value) => start + ((end - start) * (value - from)) / (to - from);
  map.inverse = (position) => from + ((to - from) * (position - start)) / (end - start);
  return map;
}

function bounds(lines, range = []) {
  const values = [...range, ...lines.flatMap((line) => line.points.map(([, y]) => y))];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (high - low > 1e-12 * Math.max(1, Math.abs(high))) return [low, high];
  return low < 0 ? [2 * low, 0] : [0, 2 * high || 1]; // a flat line
}

/** Three or so round numbers from low to high. */
function ticks(low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 2));
  const size = step * ([5, 2, 1].find((factor) => (high - low) / (step * factor) >= 2) ?? 1);
  const first = Math.ceil(low / size);
  const count = Math.min(8, Math.floor(high / size + 1e-9) - first + 1);
  return Array.from({ length: count }, (_, index) => Number(((first + index) * size).toPrecision(12)));
}

/** A number in at most four digits. */
function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace("-", "\u2212");
  return String(Number(value.toPrecision(size >= 1000 ? Math.ceil(Math.log10(size + 1)) : 3))).replace("-", "\u2212");
}

/** The last point that is not after x. */
const before = (points, x) => points.findLast((point) => point[0] <= x);

function interval(line, x) {
  const found = line.band?.find(([at]) => at === x);
  return found ? ` (${number(found[1])} to ${number(found[2])})` : "";
}

function path({ points }, x, y) {
  if (points.length === 1) return svg("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 3 });
  return svg("path", { d: points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("") });
}

/** The area between low and high. */
function band({ band: found }, x, y) {
  if (!found || found.length < 2) return null;
  const up = found.map(([at, low]) => `${x(at).toFixed(1)} ${y(low).toFixed(1)}`);
  const down = found.map(([at, , high]) => `${x(at).toFixed(1)} ${y(high).toFixed(1)}`).reverse();
  return svg("path", { class: "band", d: `M${[...up, ...down].join("L")}Z` });
}
