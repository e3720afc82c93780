// A chart of each agent's cumulative reward.

import { h, svg } from "./dom.js";
import { signed } from "./format.js";
import { colour } from "./marks.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [300, 136, 34, 8, 10, 26];

/** The chart. `go(number)` is called with the number of the turn that is clicked. */
export function rewardChart(agents, turns, go) {
  const values = [0, ...turns.map((turn) => turn.total)].filter((value) => typeof value === "number");
  const low = Math.min(...values);
  const high = Math.max(...values);
  const x = (number) => LEFT + ((WIDTH - LEFT - RIGHT) * number) / Math.max(1, turns.length);
  const flat = high === low || !Number.isFinite(high - low);
  const y = (value) => (flat ? HEIGHT / 2 : TOP + (HEIGHT - TOP - BOTTOM) * ((high - value) / (high - low)));
  const ticks = flat ? [low] : [...new Set([high, 0, low])];
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
  const caption = h("figcaption", { class: "muted small" });
  const chart = svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": "Cumulative reward of each agent",
    },
    ticks.map((value) => [
      svg("line", { class: value === 0 ? "zero" : "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, signed(Number(value.toPrecision(3)))),
    ]),
    svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 3, "text-anchor": "end" }, `turn ${turns.length}`),
    agents.map((agent) => line(agents, agent, turns, x, y)),
    turns
      .filter((turn) => turn.illegal)
      .map((turn) => svg("path", { class: "illegal", d: `M${x(turn.number)} ${HEIGHT - BOTTOM + 2}l4 7h-8z` })),
    cursor,
  );

  function nearest(event) {
    const box = chart.getBoundingClientRect();
    const position = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    return turns[Math.min(turns.length, Math.max(1, Math.round(position * turns.length))) - 1];
  }

  function mark(turn) {
    cursor.setAttribute("x1", x(turn.number));
    cursor.setAttribute("x2", x(turn.number));
    caption.textContent = `turn ${turn.number}: ${agents.map((agent) => `${agent} ${signed(totalAt(turns, agent, turn.number))}`).join(", ")}`;
  }

  if (turns.length) {
    chart.addEventListener("pointermove", (event) => mark(nearest(event)));
    chart.addEventListener("click", (event) => go(nearest(event).number));
    mark(turns.at(-1));
  }
  return { element: h("figure", { class: "chart" }, chart, caption), mark };
}

/** A step function: an agent's total stays until its next turn. */
function line(agents, agent, turns, x, y) {
  let path = `M${x(0)} ${y(0)}`;
  let total = 0;
  const dots = [];
  for (const turn of turns) {
    if (turn.agent !== agent || typeof turn.total !== "number") continue;
    path += `H${x(turn.number)}`;
    if (turn.total !== total) dots.push(svg("circle", { cx: x(turn.number), cy: y(turn.total), r: 3.5 }));
    path += `V${y(turn.total)}`;
    total = turn.total;
  }
  return svg("g", { class: `line ${colour(agents, agent)}` }, svg("path", { d: `${path}H${x(turns.length)}` }), dots);
}

const totalAt = (turns, agent, number) =>
  turns.findLast((turn) => turn.agent === agent && turn.number <= number)?.total ?? 0;
