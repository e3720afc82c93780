// Training runs over their updates: the curves of one run, or of several in the same charts, while they go on.

import { ask, link } from "./api.js";
import { lineChart } from "./curves.js";
import { h, refill } from "./dom.js";
import { count, plural } from "./format.js";
import { badge } from "./marks.js";

const EVERY = 3000; // ms between looks for new rows
const COLOURS = 8;
const DASHES = 4;

const FIRST = {
  score: { title: "score", range: [0, 1] },
  return: { title: "mean return of each agent" },
  loss: { title: "loss" },
  kl: { title: "divergence from the reference (nats)" },
  entropy: { title: "entropy (nats a token)" },
  illegal: { title: "share of turns with an illegal move", range: [0] },
  answer_tokens: { title: "tokens an answer", range: [0] },
  win_rate: { title: "win rate against opponents", range: [0, 1] },
  rating: { title: "ratings in the pool" },
};

const OTHERS = { imitation_loss: { title: "loss of the warm start", unit: "step" } };

export async function trainingPage(parameters, signal) {
  const names = [...new Set(parameters.getAll("run"))];
  const runs = await Promise.all(names.map((run) => ask("curves", { run }, signal)));
  const about = h("div", { class: "about-runs" });
  const main = h("div", { class: "curves" });
  const others = h("div", { class: "curves" });
  const more = h("details", { class: "more", ontoggle: draw }, h("summary", {}), others);

  function draw() {
    refill(about, runs.map(runLine));
    const families = [...new Set(runs.flatMap((run) => Object.keys(run.series)))];
    const first = Object.keys(FIRST).filter((family) => families.includes(family));
    const rest = families.filter((family) => !first.includes(family)).sort();
    refill(main, first.map(chart), !families.length && h("p", { class: "empty" }, "Nothing has been measured yet."));
    refill(more.querySelector("summary"), plural(rest.length, "more metric"));
    more.hidden = !rest.length;
    refill(others, more.open ? rest.map(chart) : []);
  }

  function chart(family) {
    const { title = family, unit = "update", range } = FIRST[family] ?? OTHERS[family] ?? {};
    const labels = [...new Set(runs.flatMap((run) => Object.keys(run.series[family] ?? {})))].sort();
    const lines = runs.flatMap((run, index) =>
      Object.entries(run.series[family] ?? {}).map(([label, points]) => ({
        name: [runs.length > 1 && run.name, label].filter(Boolean).join(" "),
        kind:
          runs.length > 1
            ? `c${index % COLOURS} d${labels.indexOf(label) % DASHES}`
            : `c${labels.indexOf(label) % COLOURS}`,
        points,
        band: family === "score" && !label ? run.intervals : undefined,
      })),
    );
    const marks = runs.length === 1 && unit === "update" ? runs[0].phases : [];
    const go = runs.length === 1 && unit === "update" ? (update) => openEpisodes(runs[0], update) : undefined;
    return lineChart({ title, unit, lines, range, marks, go });
  }

  function runLine(run, index) {
    const total = run.planned && run.planned >= run.updates ? ` of ${count(run.planned)}` : "";
    return h(
      "p",
      { class: `run-line c${index % COLOURS}` },
      runs.length > 1 && h("span", { class: "swatch", "aria-hidden": "true" }),
      runs.length > 1 && h("a", { class: "agent", href: link("training", { run: run.name }) }, run.name),
      h("span", {}, `update ${count(run.updates)}${total}`),
      badge(run.ended ? "" : "warn", run.ended ? "ended" : "not ended"),
      run.rows_a_point > 1 && h("span", { class: "muted" }, `a point is the mean of ${run.rows_a_point} updates`),
      h("a", { href: link("run", { run: run.name }) }, "episodes"),
      run.checkpoints.length > 0 &&
        h("span", { class: "muted" }, `checkpoints: ${run.checkpoints.map((updates) => `@${updates}`).join(" ")}`),
    );
  }

  async function look() {
    const answers = await Promise.all(runs.map(({ name, stamp }) => ask("curves", { run: name, stamp }, signal)));
    let changed = false;
    answers.forEach((answer, index) => {
      if (answer.series) [runs[index], changed] = [answer, true];
    });
    if (changed) draw();
  }

  return {
    title: names.join(", "),
    crumbs: [h("a", { href: "#/?all=1" }, "Runs"), h("b", {}, names.length > 1 ? plural(names.length, "run") : names[0])],
    keys: [
      ["e", "the episodes of the run", () => (location.hash = link("run", { run: names[0] }))],
      ["u Escape", "all runs", () => (location.hash = "#/?all=1")],
    ],
    content: [
      h(
        "div",
        { class: "head" },
        h("h1", {}, names.length > 1 ? "Training" : names[0]),
        h("p", { class: "muted" }, [...new Set(runs.flatMap((run) => run.scenarios))].join(", ")),
      ),
      about,
      main,
      more,
    ],
    ready: () => {
      draw();
      const timer = setInterval(() => !document.hidden && look().catch(() => {}), EVERY); // the next action says so
      signal.addEventListener("abort", () => clearInterval(timer));
    },
  };
}

/** Show the episodes that were kept of an update, or of the nearest that has any. */
function openEpisodes(run, update) {
  const away = ([at]) => Math.abs(at - update);
  const found = run.episodes.reduce((best, other) => (!best || away(other) < away(best) ? other : best), null);
  if (found) location.hash = link("run", { run: run.name, at: found[1] });
}
