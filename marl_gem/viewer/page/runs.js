// All runs, the newest first.

import { ask, link } from "./api.js";
import { h, refill } from "./dom.js";
import { ago, bytes, count, money, percent } from "./format.js";
import { bar, colour } from "./marks.js";

export async function runsPage(parameters, signal) {
  const { root, runs } = await ask("runs", {}, signal);
  if (runs.length === 1 && !parameters.has("all")) {
    location.replace(link("run", { run: runs[0].name }));
    return { keys: [], content: [] };
  }
  const rows = runs.map(row);
  return {
    title: "",
    keys: [
      ["j ArrowDown", "next run", () => move(rows, 1)],
      ["k ArrowUp", "previous run", () => move(rows, -1)],
      ["r", "look again for runs", () => location.reload()],
    ],
    content: [
      h("div", { class: "head" }, h("h1", {}, "Runs"), h("p", { class: "muted path" }, root)),
      h(
        "div",
        { class: "runs" },
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["run", "scenario", "seats, and how often they won", "episodes", "errors", "cost", "written"].map(
                (name) => h("th", {}, name),
              ),
            ),
          ),
          h("tbody", {}, rows),
        ),
      ),
    ],
    ready: () => fillIn(runs, rows, signal),
  };
}

function row(run) {
  return h(
    "tr",
    {},
    h("td", {}, h("a", { class: "name", href: link("run", { run: run.name }) }, run.name)),
    h("td", {}, run.scenario),
    h("td", { class: "seats" }, h("span", { class: "muted" }, "\u2026")),
    h("td", { class: "number" }, h("span", { class: "muted" }, bytes(run.size))),
    h("td", { class: "number" }),
    h("td", { class: "number" }),
    h("td", { class: "muted nowrap" }, ago(run.changed)),
  );
}

/** The numbers of each run come one after the other: to count its episodes a run must be read. */
async function fillIn(runs, rows, signal) {
  for (const [place, { name }] of runs.entries()) {
    const cells = rows[place].children;
    try {
      const run = await ask("run", { run: name }, signal);
      refill(cells[1], run.scenarios.join(", ") || cells[1].textContent);
      refill(
        cells[2],
        run.seats.slice(0, 4).map((seat) => seatLine(seat, run)),
        more(run.seats.length - 4),
      );
      refill(cells[3], count(run.episodes));
      refill(cells[4], faults(run));
      refill(cells[5], run.unpriced === run.episodes ? "\u2013" : (run.unpriced ? "\u2265 " : "") + money(run.cost));
    } catch (error) {
      if (signal.aborted) return;
      refill(cells[2], h("span", { class: "lost" }, error.message));
    }
  }
}

function seatLine(seat, run) {
  const decided = seat.won + seat.drew + seat.lost;
  return h(
    "div",
    {
      class: `seat ${colour(
        run.seats.map((one) => one.agent),
        seat.agent,
      )}`,
    },
    h("span", { class: "agent" }, seat.agent),
    h("span", { class: "muted models" }, Object.keys(seat.models).join(", ")),
    bar(seat),
    h("span", { class: "share" }, percent(seat.won, decided)),
  );
}

const more = (number) => number > 0 && h("div", { class: "muted" }, `and ${number} more`);

function faults(run) {
  const told = [
    run.errors && count(run.errors),
    run.owed && `${count(run.owed)} owed`,
    run.broken && `${count(run.broken)} broken`,
  ].filter(Boolean);
  return told.length
    ? told.map((text) => h("div", { class: "lost nowrap" }, text))
    : h("span", { class: "muted" }, "0");
}

function move(rows, step) {
  const links = rows.map((one) => one.querySelector("a"));
  const place = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, place + step))]?.focus();
}
