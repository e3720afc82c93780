// All runs, the newest first.

import { ask, link } from "./api.js";
import { h, refill } from "./dom.js";
import { ago, bytes, count, money, percent, plural } from "./format.js";
import { bar, colour, successWord } from "./marks.js";

export async function runsPage(parameters, signal) {
  const { root, runs } = await ask("runs", {}, signal);
  if (runs.length === 1 && !parameters.has("all")) {
    location.replace(link("run", { run: runs[0].name }));
    return { keys: [], content: [] };
  }
  const rows = runs.map(row);
  const overlay = h("a", { class: "button" });
  const picked = h("p", { hidden: true }, overlay);
  return {
    title: "",
    keys: [
      ["j ArrowDown", "next run", () => move(rows, 1)],
      ["k ArrowUp", "previous run", () => move(rows, -1)],
      ["r", "look again for runs", () => location.reload()],
    ],
    content: [
      h("div", { class: "head" }, h("h1", {}, "Runs"), h("p", { class: "muted path" }, root)),
      picked,
      h(
        "div",
        { class: "runs", onchange: pick },
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["run", "scenario", "agents, and their share of successes", "episodes", "errors", "cost", "written"].map(
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

  /** Offer the curves of the training runs that are ticked. */
  function pick() {
    const run = rows.flatMap((row) => row.querySelector("input:checked")?.value ?? []);
    picked.hidden = !run.length;
    overlay.href = link("training", { run });
    overlay.textContent = `Curves of ${plural(run.length, "run")}`;
  }
}

function row(run) {
  return h(
    "tr",
    {},
    h(
      "td",
      {},
      h("a", { class: "name", href: link("run", { run: run.name }) }, run.name),
      run.training &&
        h(
          "label",
          { class: "pick small" },
          h("input", { type: "checkbox", value: run.name, "aria-label": `Curves of ${run.name}` }),
          h("a", { href: link("training", { run: run.name }) }, "curves"),
        ),
    ),
    h("td", {}, run.scenarios.join(", ")),
    h("td", { class: "seats" }, h("span", { class: "muted" }, "\u2026")),
    h("td", { class: "number" }, h("span", { class: "muted" }, bytes(run.size))),
    h("td", { class: "number" }),
    h("td", { class: "number" }),
    h("td", { class: "muted nowrap" }, ago(run.changed)),
  );
}

/** Fill in the numbers of one run after the other, because the server must read a run to count its episodes. */
async function fillIn(runs, rows, signal) {
  for (const [index, { name }] of runs.entries()) {
    const cells = rows[index].children;
    try {
      while ((await ask("progress", { run: name }, signal)).reading != null); // each waits for a moment
      const run = await ask("run", { run: name }, signal);
      refill(cells[1], run.scenarios.join(", ") || cells[1].textContent);
      refill(
        cells[2],
        run.agents.slice(0, 4).map((agent) => agentLine(agent, run)),
        more(run.agents.length - 4),
      );
      refill(cells[3], count(run.episodes));
      refill(cells[4], faults(run));
      refill(cells[5], run.unpriced === run.episodes ? "\u2013" : (run.unpriced ? "\u2265 " : "") + money(run.cost));
    } catch (error) {
      if (signal.aborted) return;
      refill(cells[2], h("span", { class: "negative" }, error.message));
    }
  }
}

function agentLine(agent, run) {
  const names = run.agents.map(({ agent }) => agent);
  return h(
    "div",
    { class: `seat ${colour(names, agent.agent)}` },
    h("span", { class: "agent" }, agent.agent),
    h("span", { class: "muted models" }, Object.keys(agent.models).join(", ")),
    bar(agent),
    h("span", { class: "share", title: successWord(agent) }, percent(agent.successes, agent.episodes)),
  );
}

const more = (number) => number > 0 && h("div", { class: "muted" }, `and ${number} more`);

function faults(run) {
  const counts = [
    run.errors && count(run.errors),
    run.pending && `${count(run.pending)} pending`,
    run.broken && `${count(run.broken)} broken`,
  ].filter(Boolean);
  return counts.length
    ? counts.map((text) => h("div", { class: "negative nowrap" }, text))
    : h("span", { class: "muted" }, "0");
}

function move(rows, step) {
  const links = rows.map((row) => row.querySelector("a"));
  const index = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, index + step))]?.focus();
}
