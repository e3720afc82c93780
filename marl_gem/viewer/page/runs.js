// All runs: found by words, kind and status, in an order, by scenario if wanted; kept up to date while runs go on.

import { ask, link } from "./api.js";
import { h, refill } from "./dom.js";
import { ago, bytes, count, money, plural, scoreText, when } from "./format.js";
import { statusBadge } from "./marks.js";

const EVERY = 3000; // ms between looks for changes
const WAIT = 150; // ms after the last key until a search begins
const SHOWN = 200; // rows that are made at once

const KINDS = ["evaluation", "grid", "tournament", "training", "played"];
const STATUSES = ["running", "finished", "interrupted", "failed", "empty"];

const ORDERS = {
  "": { name: "newest", column: "written", of: (run) => run.changed },
  name: { name: "by name", column: "run", of: (run) => run.name },
  scenario: { name: "by scenario", column: "scenario", of: (run) => run.scenarios.join() },
  status: { name: "by status", column: "status", of: (run) => STATUSES.indexOf(run.status) },
  score: { name: "best score", column: "score", of: (run) => run.score?.value },
  episodes: { name: "most episodes", column: "episodes", of: (run) => run.episodes },
  cost: { name: "costliest", column: "cost", of: (run) => run.cost },
};
const ASCENDING = ["name", "scenario", "status"];

export async function runsPage(parameters, signal) {
  let { root, runs, stamp } = await ask("runs", {}, signal);
  const single = runs.filter((run) => !run.parent);
  if (single.length === 1 && !parameters.has("all")) {
    location.replace(link("run", { run: single[0].name }));
    return { keys: [], content: [] };
  }
  const query = Object.fromEntries(
    ["text", "kind", "status", "sort", "reverse", "group"].map((name) => [name, parameters.get(name) ?? ""]),
  );
  const picks = new Set(parameters.getAll("pick"));
  const made = new Map(); // rows by the name of their run, with what they show
  const body = h("tbody", {});
  const names = h("tr", {}, ["name", "status", "scenario", "score", "episodes", "cost", ""].map(heading));
  const found = h("span", { class: "muted", role: "status" });
  const picked = h("div", { class: "picked", hidden: true });
  const more = h("button", { hidden: true, onclick: () => draw((limit += SHOWN)) });
  const controls = toolbar(query, () => changed());
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && complete(entry.target)));
  const waiting = [];
  let limit = SHOWN;
  let completing = false;

  function heading(key) {
    const { name, column } = ORDERS[key];
    const button = h("button", { class: "quiet", title: name, "data-sort": key, onclick: () => sortBy(key) }, column);
    return h("th", { scope: "col", class: ["episodes", "cost"].includes(key) ? "number" : "" }, button);
  }

  function sortBy(key) {
    query.reverse = query.sort === key && !query.reverse ? "1" : "";
    query.sort = key;
    changed();
  }

  function changed() {
    history.replaceState(null, "", link("", { ...query, pick: [...picks], all: 1 }));
    limit = SHOWN;
    draw();
  }

  function draw() {
    const fitting = select(runs, query);
    const shown = fitting.slice(0, limit);
    const focused = document.activeElement;
    const elements = query.group ? grouped(shown) : shown.map(rowOf);
    body.replaceChildren(...elements);
    if (focused?.isConnected && body.contains(focused)) focused.focus({ preventScroll: true });
    const total = query.text || query.kind === "match" ? runs.length : runs.filter((run) => !run.parent).length;
    refill(found, fitting.length === total ? plural(total, "run") : `${count(fitting.length)} of ${plural(total, "run")}`);
    if (!fitting.length) body.append(h("tr", {}, h("td", { class: "empty", colspan: 7 }, runs.length ? "No run fits." : nothing(root))));
    more.hidden = fitting.length <= limit;
    refill(more, `Show ${count(Math.min(SHOWN, fitting.length - limit))} more`);
    for (const th of names.children) {
      const sorted = th.firstChild.dataset.sort === query.sort;
      const up = ASCENDING.includes(query.sort) !== Boolean(query.reverse);
      th.setAttribute("aria-sort", sorted ? (up ? "ascending" : "descending") : "none");
    }
    controls.show();
    showPicked();
  }

  /** Rows under a heading for each scenario. */
  function grouped(shown) {
    const groups = new Map();
    for (const run of shown) {
      const scenario = run.scenarios.join(", ") || "unknown scenario";
      groups.set(scenario, [...(groups.get(scenario) ?? []), run]);
    }
    return [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).flatMap(([scenario, members]) => [
      h("tr", { class: "group" }, h("th", { colspan: 7, scope: "rowgroup" }, scenario, h("span", { class: "muted" }, ` ${plural(members.length, "run")}`))),
      ...members.map(rowOf),
    ]);
  }

  /** The row of a run; the one there is, if nothing has changed. */
  function rowOf(run) {
    const text = JSON.stringify(run);
    const known = made.get(run.name);
    if (known?.text === text) {
      refill(known.row.lastChild, ago(run.changed));
      return known.row;
    }
    const row = rowElement(run, picks, pick);
    if (known) seen.unobserve(known.row);
    made.set(run.name, { text, row });
    if (run.episodes == null && run.status !== "empty" && run.kind !== "grid") seen.observe(row);
    return row;
  }

  function pick(name, ticked) {
    if (ticked) picks.add(name);
    else picks.delete(name);
    history.replaceState(null, "", link("", { ...query, pick: [...picks], all: 1 }));
    showPicked();
  }

  /** What can be done with the runs that are ticked. */
  function showPicked() {
    const chosen = runs.filter((run) => picks.has(run.name)).reverse();
    const curves = chosen.filter((run) => run.training).map((run) => run.name);
    picked.hidden = !chosen.length;
    refill(
      picked,
      chosen.length === 2 && h("a", { class: "button primary", href: link("comparison", { run: chosen[0].name, run2: chosen[1].name }) }, "Compare ", h("b", {}, chosen[0].name), " with ", h("b", {}, chosen[1].name)),
      chosen.length === 1 && h("span", {}, "Tick another run to compare it with ", h("b", {}, chosen[0].name)),
      chosen.length > 2 && h("span", {}, `${chosen.length} runs are ticked; two can be compared`),
      curves.length > 0 && h("a", { class: "button", href: link("training", { run: curves }) }, `Curves of ${plural(curves.length, "run")}`),
      h("button", { class: "quiet", onclick: clear }, "Clear"),
    );
  }

  function clear() {
    picks.clear();
    for (const box of body.querySelectorAll("input:checked")) box.checked = false;
    changed();
  }

  /** Read the numbers of a run that does not say them itself, one run after the other. */
  async function complete(row) {
    seen.unobserve(row);
    waiting.push(row.dataset.name);
    if (completing) return;
    completing = true;
    try {
      while (waiting.length) await completeRun(waiting.shift());
    } finally {
      completing = false;
    }
  }

  async function completeRun(name) {
    try {
      while ((await ask("progress", { run: name }, signal)).reading != null); // each waits for a moment
      const numbers = await ask("run", { run: name }, signal);
      const run = runs.find((run) => run.name === name);
      if (!run) return;
      Object.assign(run, counted(run, numbers));
    } catch (error) {
      if (signal.aborted) return;
      const run = runs.find((run) => run.name === name);
      if (run) Object.assign(run, { status: "failed", why: error.message, episodes: 0 });
    }
    draw();
  }

  async function look() {
    const answer = await ask("runs", { stamp }, signal);
    if (!answer.runs) return;
    const read = new Map(runs.map((run) => [run.name, run]));
    for (const run of answer.runs) {
      const before = read.get(run.name);
      if (before && before.changed === run.changed && run.episodes == null)
        for (const name of ["episodes", "score", "cost", "faults"]) run[name] = before[name];
    }
    ({ runs, stamp } = answer);
    draw();
  }

  return {
    title: "",
    keys: [
      ["j ArrowDown", "next run", () => move(body, 1)],
      ["k ArrowUp", "previous run", () => move(body, -1)],
      ["/", "search", () => controls.search.focus()],
      ["x", "tick the run, or not; two ticked runs can be compared", () => document.activeElement.closest?.("tr")?.querySelector("input")?.click()],
      ["c", "compare the two runs that are ticked", () => picked.querySelector("a.primary")?.click()],
      ["r", "look again for runs", () => location.reload()],
    ],
    content: [
      h("div", { class: "head" }, h("h1", {}, "Runs"), h("p", { class: "muted path" }, root)),
      h("div", { class: "filters" }, controls.element, found),
      picked,
      h("div", { class: "runs" }, h("table", {}, h("thead", {}, names), body)),
      more,
    ],
    ready: () => {
      draw();
      const timer = setInterval(() => !document.hidden && look().catch(() => {}), EVERY); // the next action says so
      signal.addEventListener("abort", () => [clearInterval(timer), seen.disconnect()]);
    },
  };
}

const nothing = (root) =>
  `There is no run in ${root} yet. marl-gem eval ... --out DIR makes one, and so does marl-gem train; this page shows it once it is there.`;

/** The runs that fit, in order. Matches of grids are shown with the grid, and here only if they are looked for. */
function select(runs, query) {
  const words = query.text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = query.kind === "match";
  const fitting = runs.filter(
    (run) =>
      (matches ? run.parent : query.text || !run.parent) &&
      (matches || !query.kind || run.kind === query.kind) &&
      (!query.status || run.status === query.status) &&
      words.every((word) => wordsOf(run).includes(word)),
  );
  const { of } = ORDERS[query.sort] ?? ORDERS[""];
  const sign = (ASCENDING.includes(query.sort) ? 1 : -1) * (query.reverse ? -1 : 1);
  const order = (a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x == null || y == null) return (x == null) - (y == null); // what is not known comes last
    return sign * (x < y ? -1 : x > y ? 1 : 0);
  };
  return fitting.sort(order);
}

const wordsOf = (run) => [run.name, run.kind, run.status, ...run.scenarios, ...run.seats].join(" ").toLowerCase();

/** What the numbers of a run say of it in the list. */
function counted(run, numbers) {
  const first = numbers.agents.find((agent) => agent.episodes);
  const value = first && first.successes / first.episodes;
  return {
    episodes: numbers.episodes,
    cost: numbers.unpriced ? run.cost : numbers.cost,
    score: run.score ?? (first && { of: first.agent, what: first.contests ? "win rate" : "success rate", value }),
    scenarios: run.scenarios.length ? run.scenarios : numbers.scenarios,
    faults: [
      numbers.errors && plural(numbers.errors, "error"),
      numbers.pending && `${count(numbers.pending)} pending`,
      numbers.broken && plural(numbers.broken, "broken line"),
    ].filter(Boolean),
  };
}

function rowElement(run, picks, pick) {
  const box = h("input", { type: "checkbox", value: run.name, checked: picks.has(run.name), "aria-label": `Choose ${run.name}` });
  box.addEventListener("change", () => pick(run.name, box.checked));
  const cell = (label, kind, ...children) => h("td", { "data-label": label, class: kind }, children);
  return h(
    "tr",
    { "data-name": run.name },
    cell(
      "",
      "title",
      h("label", { class: "pick" }, box, h("a", { class: "name", href: link("run", { run: run.name }) }, run.name)),
      h(
        "div",
        { class: "muted small" },
        run.parent ? "match of a grid" : run.kind,
        run.training && [" \u00b7 ", h("a", { href: link("training", { run: run.name }) }, "curves")],
        run.seats.map((seat) => [" \u00b7 ", seat]),
        run.more_seats > 0 && ` and ${count(run.more_seats)} more`,
      ),
    ),
    cell(
      "status",
      "state",
      statusBadge(run.status),
      run.why && h("div", { class: "muted small because" }, run.why),
      (run.faults ?? []).map((fault) => h("div", { class: "negative small" }, fault)),
    ),
    cell("scenario", "scenario", run.scenarios.join(", ") || "\u2013"),
    cell("score", "score", score(run.score)),
    cell("episodes", "number", episodes(run)),
    cell("cost", "number", money(run.cost)),
    h("td", { "data-label": "written", class: "muted nowrap", title: when(run.changed) }, ago(run.changed)),
  );
}

function score(found) {
  if (!found) return "\u2013";
  const [value, range] = scoreText(found);
  return [
    h("b", {}, value),
    range && h("span", { class: "muted small" }, ` ${range}`),
    h("div", { class: "muted small" }, [found.what, found.of].filter(Boolean).join(", ")),
  ];
}

function episodes(run) {
  if (run.episodes == null) return run.size ? h("span", { class: "muted" }, bytes(run.size)) : "\u2013";
  return run.planned > run.episodes ? `${count(run.episodes)} of ${count(run.planned)}` : count(run.episodes);
}

/** The controls above the list. */
function toolbar(query, changed) {
  let timer;
  const search = h("input", { type: "search", placeholder: "Search runs  /", "aria-label": "Search", maxlength: 200, oninput: later });
  const kind = choice("kind", ["", ...KINDS, "match"], (value) => ({ "": "any kind", match: "matches of grids" })[value] ?? value);
  const status = choice("status", ["", ...STATUSES], (value) => value || "any status");
  const sort = choice("sort", Object.keys(ORDERS), (value) => ORDERS[value].name);
  const group = h("input", { type: "checkbox", onchange: () => set({ group: group.checked ? "1" : "" }) });

  function later() {
    query.text = search.value; // at once: another control may redraw before the time is over
    clearTimeout(timer);
    timer = setTimeout(changed, WAIT);
  }

  function choice(name, values, text) {
    const options = values.map((value) => h("option", { value }, text(value)));
    const select = h("select", { "aria-label": name, onchange: () => set({ [name]: select.value, ...(name === "sort" && { reverse: "" }) }) }, options);
    return select;
  }

  function set(values) {
    Object.assign(query, values);
    changed();
  }

  function show() {
    [kind.value, status.value, sort.value, group.checked] = [query.kind, query.status, query.sort, Boolean(query.group)];
    if (document.activeElement !== search) search.value = query.text;
  }

  return { element: [search, kind, status, sort, h("label", { class: "check" }, group, "by scenario")], search, show };
}

function move(body, step) {
  const links = [...body.querySelectorAll("a.name")];
  const index = links.indexOf(document.activeElement.closest?.("tr")?.querySelector("a.name"));
  links[Math.min(links.length - 1, Math.max(0, index + step))]?.focus();
}
