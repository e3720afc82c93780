// One run: its numbers, and a table of its episodes.

import { ask, link, picture, queryOf } from "./api.js";
import { h, refill } from "./dom.js";
import { ago, brief, count, duration, money, percent, plural, when } from "./format.js";
import { statusBadge } from "./marks.js";
import { agentCards, resultSections } from "./results.js";
import { episodeTable, firstRows } from "./table.js";

const EVERY = 5000; // ms between checks for new episodes
const WAIT = 250; // ms after the last key until a search begins

const FILTERS = {
  success: "Success of the chosen seat or model, or of any agent",
  failure: "No success of the chosen seat or model, or of any agent",
  win: "Won by the chosen seat or model, or by any agent",
  draw: "Drawn",
  loss: "Lost by the chosen seat or model, or by any agent",
  error: "Ended with an error",
  illegal: "With an illegal move",
  truncated: "Truncated, by a limit or by the scenario",
  failed: "Attempts that failed because of infrastructure",
  broken: "Lines of the file that are no episodes",
};

const ORDERS = [
  ["", "in file order"],
  ["turns", "longest"],
  ["cost", "costliest"],
  ["tokens", "most tokens"],
  ["seconds", "slowest"],
  ["return", "highest return"],
  ["task", "by task"],
];

export async function runPage(parameters, signal) {
  const query = queryOf(parameters);
  const rows = firstRows(parameters.get("run"), query, signal); // asked for at once, not after the numbers
  rows.catch(() => {}); // the question for the run fails as well, and says why
  const run = await ask("run", { run: parameters.get("run") }, signal);
  const agents = run.agents.map(({ agent }) => agent);
  const status = h("span", { class: "muted", role: "status" });
  const numbers = h("div", { class: "numbers" });
  const head = h("div", { class: "head" });
  const hasEpisodes = () => lines(run) > 0 || run.reading != null;
  const show = () => {
    const unfolded = [...numbers.querySelectorAll("details")].map((details) => details.open); // of the numbers before
    refill(head, heading(run));
    const sections = resultSections(run, agents, narrow);
    refill(numbers, run.agents.length > 0 && agentCards(run, agents), hasEpisodes() && tiles(run), sections.length > 0 && h("div", { class: "panels" }, sections));
    numbers.querySelectorAll("details").forEach((details, index) => (details.open = unfolded[index] ?? details.open));
  };
  const table = episodeTable({
    run,
    agents,
    signal,
    counted: (total) =>
      refill(
        status,
        total >= lines(run) ? plural(total, "episode") : `${count(total)} of ${plural(lines(run), "episode")}`,
        run.reading != null && `, ${percent(run.reading, 1)} of the run has been read`,
      ),
    sort: (name) => {
      query.reverse = query.sort === name && !query.reverse ? "1" : "";
      query.sort = name;
      changed();
    },
  });
  const controls = filterBar(run, query, () => changed());
  const list = [h("div", { class: "filters" }, controls.element, status), table.element];

  /** Show the episodes that fit, from a section above the table. */
  function narrow(changes) {
    Object.assign(query, changes);
    changed();
    table.element.scrollIntoView({ block: "nearest" });
  }

  /** While the server reads a long run, show how far it is; then show all of it. */
  async function readOn() {
    if (run.reading == null) return;
    while (run.reading != null) {
      await new Promise((done) => setTimeout(done, 500));
      Object.assign(run, await ask("progress", { run: run.name }, signal));
      table.refresh();
    }
    Object.assign(run, await ask("run", { run: run.name }, signal));
    if (run.agents.some(({ agent }) => !agents.includes(agent))) return dispatchEvent(new Event("hashchange"));
    show();
    table.refresh();
  }

  /** Show what is new at the end of the list while a run goes on; false where rows would change places. */
  function update(now) {
    if (lines(now) < lines(run) || query.sort || query.reverse || !lines(run)) return false;
    if (now.agents.some(({ agent }) => !agents.includes(agent))) return false;
    Object.assign(run, now);
    show();
    table.refresh();
    return true;
  }

  function changed() {
    history.replaceState(null, "", link("run", { run: run.name, ...query }));
    controls.show();
    table.load(query);
  }

  return {
    title: run.name,
    crumbs: [h("a", { href: "#/?all=1" }, "Runs"), h("b", {}, run.name)],
    keys: [
      ...table.keys,
      ["/", "search", () => controls.search.focus()],
      ["r", "read the run again", () => location.reload()],
      ["u Escape", "all runs", () => (location.hash = "#/?all=1")],
    ],
    content: [
      head,
      numbers,
      hasEpisodes() ? list : run.results?.grid ? matchLinks(run) : emptyRun(run),
    ],
    ready: async () => {
      show();
      controls.show();
      if (hasEpisodes()) {
        table.load(query, parameters.get("at"), rows);
        await readOn();
      }
      watch(run, signal, update);
    },
  };
}

const lines = (run) => run.episodes + run.failed + run.broken;

function heading(run) {
  const { row } = run;
  const open = document.querySelector("details.about")?.open;
  const about = h(
    "details",
    { class: "about", open },
    h("summary", {}, "About this run"),
    h("p", { class: "muted path" }, run.path),
    run.results?.command && h("pre", {}, run.results.command),
    run.pictures.map((name) =>
      h("img", { src: picture(run.name, name), alt: name, loading: "lazy" }),
    ),
    ["config", "report"].map(
      (name) => run[name] && h("details", {}, h("summary", {}, `${name}.json`), h("pre", {}, run[name])),
    ),
  );
  const kind = run.matches.length ? "grid" : row.kind;
  return [
    h("h1", {}, run.name),
    statusBadge(row.status),
    run.training && h("a", { class: "button", href: link("training", { run: run.name }) }, "Curves"),
    h("a", { class: "button", href: link("", { all: 1, pick: run.name, text: run.scenarios[0] ?? row.scenarios[0] }) }, "Compare\u2026"),
    h(
      "p",
      { class: "muted", title: when(run.changed) },
      [kind, (run.scenarios.length ? run.scenarios : row.scenarios).join(", "), run.changed && `written ${ago(run.changed)}`]
        .filter(Boolean)
        .join(" \u00b7 "),
    ),
    row.why && h("p", { class: row.status === "failed" ? "wide errorbox" : "wide warnbox" }, row.why),
    h("p", { id: "new" }),
    about,
  ];
}

const emptyRun = (run) =>
  h(
    "div",
    { class: "empty" },
    h("h2", {}, "This run has no episodes"),
    h("p", {}, run.row.status === "running" ? "The first ones appear here when they are finished." : run.row.why),
  );

/** The matches of a grid, whose episodes are in runs of their own. */
const matchLinks = (run) =>
  run.matches.length > 0 &&
  h(
    "details",
    { class: "panel" },
    h("summary", {}, plural(run.matches.length, "match").replace("matchs", "matches")),
    h("ul", {}, run.matches.map((name) => h("li", {}, h("a", { href: link("run", { run: name }) }, name)))),
  );

function tiles(run) {
  const facts = [
    ["episodes", count(run.episodes)],
    ["errors", count(run.errors), run.errors && "negative"],
    run.pending && ["pending", count(run.pending), "negative"],
    run.broken && ["broken lines", count(run.broken), "negative"],
    ["truncated", count(run.truncated)],
    ["turns", brief(run.turns)],
    ["tokens", brief(run.tokens)],
    ["cost", run.episodes > 0 && run.unpriced === run.episodes ? "unknown" : (run.unpriced ? "\u2265 " : "") + money(run.cost)],
    ["mean time", run.episodes ? duration(run.seconds / run.episodes) : "\u2013"],
  ];
  return h(
    "dl",
    { class: "tiles" },
    facts
      .filter(Boolean)
      .map(([name, value, kind]) => h("div", {}, h("dt", {}, name), h("dd", { class: kind || "" }, value))),
  );
}

function filterBar(run, query, changed) {
  const contests = run.agents.some((agent) => agent.contests);
  const tasks = run.agents.some((agent) => agent.episodes > agent.contests);
  const present = { win: contests, draw: contests, loss: contests, failed: run.failed, broken: run.broken };
  for (const name of ["success", "failure"]) present[name] = tasks || !contests;
  const shown = run.filters.filter((name) => (present[name] ?? true) || query.filter.includes(name));
  const chips = shown.map((name) =>
    h("button", { class: `chip ${name}`, title: FILTERS[name], onclick: () => toggle(name) }, name),
  );
  const reasons = countReasons(run);
  const grades = [...new Set((run.results?.grades ?? []).map((row) => row.grade))];
  const models = [...new Set(run.agents.flatMap((agent) => Object.keys(agent.models)))];
  const seat = choice(
    "any seat",
    run.agents.map(({ agent }) => agent),
    "seat",
  );
  const model = choice("any model", models, "model");
  const reason = choice("any reason", Object.keys(reasons), "reason", (name) => `${name} (${count(reasons[name])})`);
  const grade = choice("any grade", grades, "grade");
  const task = h("input", {
    class: "tasknumber",
    inputmode: "numeric",
    pattern: "[0-9]*",
    placeholder: "task",
    "aria-label": "task",
    maxlength: 9,
    oninput: () => later({ task: task.value.replace(/\D/g, "") }),
  });
  const reset = h("button", { class: "quiet", onclick: () => set({ ...NOTHING, filter: [] }) }, "Clear filters");
  const sort = h(
    "select",
    { "aria-label": "Order", onchange: () => set({ sort: sort.value, reverse: "" }) },
    ORDERS.map(([value, text]) => h("option", { value }, text)),
  );
  const search = h("input", {
    type: "search",
    placeholder: "Search texts  /",
    "aria-label": "Search",
    maxlength: 500,
    oninput: () => later({ text: search.value }),
  });
  let waiting;

  function later(values) {
    Object.assign(query, values); // at once: another control may redraw before the time is over
    clearTimeout(waiting);
    waiting = setTimeout(changed, WAIT);
  }

  function choice(none, names, field, write = (name) => name) {
    const options = [["", none], ...names.map((name) => [name, write(name)])].map(([value, text]) =>
      h("option", { value }, text),
    );
    const select = h(
      "select",
      { "aria-label": field, onchange: () => set({ [field]: names[select.selectedIndex - 1] ?? "" }) },
      options,
    );
    select.names = names;
    return select;
  }

  function toggle(name) {
    set({ filter: query.filter.includes(name) ? query.filter.filter((other) => other !== name) : [...query.filter, name] });
  }

  function set(values) {
    Object.assign(query, values);
    changed();
  }

  function show() {
    chips.forEach((chip, index) => chip.setAttribute("aria-pressed", query.filter.includes(shown[index])));
    seat.selectedIndex = seat.names.indexOf(query.seat) + 1;
    model.selectedIndex = model.names.indexOf(query.model) + 1;
    reason.selectedIndex = reason.names.indexOf(query.reason) + 1;
    grade.selectedIndex = grade.names.indexOf(query.grade) + 1;
    if (document.activeElement !== task) task.value = query.task;
    reset.hidden = !query.filter.length && Object.keys(NOTHING).every((name) => !query[name]);
    sort.value = query.reverse ? "-" : query.sort;
    if (document.activeElement !== search) search.value = query.text;
  }

  return {
    element: [
      search,
      h("span", { class: "chips" }, chips),
      run.agents.length > 1 && seat,
      models.length > 1 && model,
      run.tasks > 1 && task,
      grades.length > 1 && grade,
      reason.names.length > 0 && reason,
      sort,
      reset,
    ],
    search,
    show,
  };
}

const NOTHING = { text: "", seat: "", model: "", task: "", grade: "", reason: "" };

/** How many episodes did not succeed for each reason, over all agents; agents with the same reason count once. */
function countReasons(run) {
  const found = Object.create(null);
  for (const agent of run.agents)
    for (const [reason, times] of Object.entries(agent.reasons)) found[reason] = Math.max(found[reason] ?? 0, times);
  return found;
}

/** While this page is shown, show new episodes, or offer to. */
function watch(run, signal, update) {
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const now = await ask("run", { run: run.name }, signal);
      const fresh = lines(now) - lines(run);
      if (fresh && update(now)) return;
      if (now.row.status !== run.row.status || now.report !== run.report) return dispatchEvent(new Event("hashchange"));
      if (fresh)
        refill(
          document.getElementById("new"),
          h(
            "button",
            { onclick: () => location.reload() },
            fresh > 0 ? `${plural(fresh, "new episode")}: show` : "The run has changed: show it",
          ),
        );
    } catch {} // the server is gone; the next action says so
  }, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
}
