// One run: its numbers, and a table of its episodes.

import { ask, link, picture, queryOf } from "./api.js";
import { h, refill } from "./dom.js";
import { ago, brief, count, duration, money, percent, plural, signed } from "./format.js";
import { badge, bar, colour, successWord } from "./marks.js";
import { episodeTable } from "./table.js";

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
];

export async function runPage(parameters, signal) {
  const run = await ask("run", { run: parameters.get("run") }, signal);
  const agents = run.agents.map(({ agent }) => agent);
  const query = queryOf(parameters);
  const status = h("span", { class: "muted", role: "status" });
  const numbers = h("div", { class: "numbers" });
  const show = () => refill(numbers, agentCards(run, agents), tiles(run));
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
      heading(run),
      numbers,
      h("div", { class: "filters" }, controls.element, status),
      table.element,
    ],
    ready: async () => {
      show();
      controls.show();
      table.load(query, parameters.get("at"));
      await readOn();
      watch(run, signal);
    },
  };
}

const rounded = (value) => (typeof value === "number" ? Number(value.toFixed(3)) : value);

const lines = (run) => run.episodes + run.failed + run.broken;

function heading(run) {
  const about = h(
    "details",
    { class: "about" },
    h("summary", {}, "About this run"),
    h("p", { class: "muted path" }, run.path),
    run.pictures.map((name) =>
      h("img", { src: picture(run.name, name), alt: name, loading: "lazy" }),
    ),
    ["config", "report"].map(
      (name) => run[name] && h("details", {}, h("summary", {}, `${name}.json`), h("pre", {}, run[name])),
    ),
  );
  return h(
    "div",
    { class: "head" },
    h("h1", {}, run.name),
    run.training && h("a", { class: "button", href: link("training", { run: run.name }) }, "Curves"),
    h(
      "p",
      { class: "muted" },
      [run.scenarios.join(", "), `written ${ago(run.changed)}`].filter(Boolean).join(" \u00b7 "),
    ),
    h("p", { id: "new" }),
    about,
  );
}

function agentCards(run, agents) {
  const cards = run.agents.slice(0, 6).map((agent) =>
    h(
      "div",
      { class: `card ${colour(agents, agent.agent)}` },
      h(
        "div",
        { class: "line" },
        h("span", { class: "agent" }, agent.agent),
        h(
          "span",
          { class: "muted models", title: Object.keys(agent.models).join(", ") },
          Object.keys(agent.models).join(", ") || "no model",
        ),
        h("span", { class: "spring" }),
        h("b", {}, percent(agent.successes, agent.episodes)),
        h("span", { class: "muted" }, successWord(agent)),
      ),
      bar(agent),
      h(
        "div",
        { class: "line muted small" },
        h("span", {}, "mean return ", h("b", {}, signed(rounded(agent.mean_return)))),
        h("span", { class: "spring" }),
        agent.illegal ? badge("warn", `illegal in ${percent(agent.illegal, run.episodes)}`) : null,
      ),
    ),
  );
  return h(
    "div",
    { class: "cards" },
    cards,
    run.agents.length > 6 && h("div", { class: "card muted" }, `and ${run.agents.length - 6} more agents`),
  );
}

function tiles(run) {
  const facts = [
    ["episodes", count(run.episodes)],
    ["errors", count(run.errors), run.errors && "negative"],
    run.pending && ["pending", count(run.pending), "negative"],
    run.broken && ["broken lines", count(run.broken), "negative"],
    ["truncated", count(run.truncated)],
    ["turns", brief(run.turns)],
    ["tokens", brief(run.tokens)],
    ["cost", run.unpriced === run.episodes ? "unknown" : (run.unpriced ? "\u2265 " : "") + money(run.cost)],
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
  const models = [...new Set(run.agents.flatMap((agent) => Object.keys(agent.models)))];
  const seat = choice(
    "any seat",
    run.agents.map(({ agent }) => agent),
    "seat",
  );
  const model = choice("any model", models, "model");
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
    oninput: later,
  });
  let waiting;

  function later() {
    clearTimeout(waiting);
    waiting = setTimeout(() => set({ text: search.value }), WAIT);
  }

  function choice(none, names, field) {
    const options = [["", none], ...names.map((name) => [name, name])].map(([value, text]) =>
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
    sort.value = query.reverse ? "-" : query.sort;
    if (document.activeElement !== search) search.value = query.text;
  }

  return {
    element: [
      search,
      h("span", { class: "chips" }, chips),
      run.agents.length > 1 && seat,
      models.length > 1 && model,
      sort,
    ],
    search,
    show,
  };
}

/** While this page is shown, offer to load new episodes. */
function watch(run, signal) {
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const now = await ask("run", { run: run.name }, signal);
      const fresh = lines(now) - lines(run);
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
