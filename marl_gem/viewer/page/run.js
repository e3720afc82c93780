// One run: its numbers, and its episodes in a table.

import { ask, encode, link, queryOf } from "./api.js";
import { h, refill } from "./dom.js";
import { ago, brief, count, duration, money, percent, plural, signed } from "./format.js";
import { badge, bar, colour } from "./marks.js";
import { episodeTable } from "./table.js";

const EVERY = 5000; // ms between looks whether there are new episodes
const WAIT = 250; // ms after the last key before a search begins

const FILTERS = {
  won: "Won by the chosen seat or model; by anybody, if none is chosen",
  drew: "Drawn",
  lost: "Lost by the chosen seat or model; by anybody, if none is chosen",
  error: "Broken off by an error",
  illegal: "With an illegal move",
  cut: "Ended by a limit",
  failed: "Attempts that failed for no fault of their own",
  broken: "Lines of the file that are no episodes",
};

const ORDERS = [
  ["", "in order"],
  ["turns", "longest"],
  ["cost", "costliest"],
  ["tokens", "most tokens"],
  ["seconds", "slowest"],
  ["return", "highest return"],
];

export async function runPage(parameters, signal) {
  const run = await ask("run", { run: parameters.get("run") }, signal);
  const agents = run.seats.map((seat) => seat.agent);
  const query = queryOf(parameters);
  const told = h("span", { class: "muted", role: "status" });
  const table = episodeTable({
    run,
    agents,
    signal,
    told: (total) =>
      refill(
        told,
        total === whole(run) ? plural(total, "episode") : `${count(total)} of ${plural(whole(run), "episode")}`,
      ),
    sort: (name) => {
      query.reverse = query.sort === name && !query.reverse ? "1" : "";
      query.sort = name;
      changed();
    },
  });
  const controls = filterBar(run, query, () => changed());

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
      seatCards(run, agents),
      tiles(run),
      h("div", { class: "filters" }, controls.element, told),
      table.element,
    ],
    ready: () => {
      controls.show();
      table.load(query, parameters.get("at"));
      watch(run, signal);
    },
  };
}

const whole = (run) => run.episodes + run.failed + run.broken;

function heading(run) {
  const about = h(
    "details",
    { class: "about" },
    h("summary", {}, "About this run"),
    h("p", { class: "muted path" }, run.path),
    run.pictures.map((name) =>
      h("img", { src: `picture?${encode({ run: run.name, name })}`, alt: name, loading: "lazy" }),
    ),
    ["config", "report"].map(
      (name) => run[name] && h("details", {}, h("summary", {}, `${name}.json`), h("pre", {}, run[name])),
    ),
  );
  return h(
    "div",
    { class: "head" },
    h("h1", {}, run.name),
    h(
      "p",
      { class: "muted" },
      [run.scenarios.join(", "), `written ${ago(run.changed)}`].filter(Boolean).join(" \u00b7 "),
    ),
    h("p", { id: "new" }),
    about,
  );
}

function seatCards(run, agents) {
  const cards = run.seats.slice(0, 6).map((seat) => {
    const decided = seat.won + seat.drew + seat.lost;
    return h(
      "div",
      { class: `card ${colour(agents, seat.agent)}` },
      h(
        "div",
        { class: "line" },
        h("span", { class: "agent" }, seat.agent),
        h(
          "span",
          { class: "muted models", title: Object.keys(seat.models).join(", ") },
          Object.keys(seat.models).join(", ") || "nobody",
        ),
        h("span", { class: "spring" }),
        h("b", {}, percent(seat.won, decided)),
        h("span", { class: "muted" }, "won"),
      ),
      bar(seat),
      h(
        "div",
        { class: "line muted small" },
        h("span", {}, "mean return ", h("b", {}, signed(Number(seat.mean_return.toFixed(3))))),
        h("span", { class: "spring" }),
        seat.illegal ? badge("warn", `illegal in ${percent(seat.illegal, run.episodes)}`) : null,
      ),
    );
  });
  return h(
    "div",
    { class: "cards" },
    cards,
    run.seats.length > 6 && h("div", { class: "card muted" }, `and ${run.seats.length - 6} more seats`),
  );
}

function tiles(run) {
  const facts = [
    ["episodes", count(run.episodes)],
    ["errors", count(run.errors), run.errors && "lost"],
    run.owed && ["owed", count(run.owed), "lost"],
    run.broken && ["broken lines", count(run.broken), "lost"],
    ["cut by a limit", count(run.cut)],
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
  const shown = run.filters.filter(
    (name) => !(name === "failed" && !run.failed) && !(name === "broken" && !run.broken),
  );
  const chips = shown.map((name) =>
    h("button", { class: `chip ${name}`, title: FILTERS[name], onclick: () => toggle(name) }, name),
  );
  const models = [...new Set(run.seats.flatMap((seat) => Object.keys(seat.models)))];
  const seat = choice(
    "any seat",
    run.seats.map((one) => one.agent),
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
    placeholder: "Search what was said  /",
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
    set({ filter: query.filter.includes(name) ? query.filter.filter((one) => one !== name) : [...query.filter, name] });
  }

  function set(values) {
    Object.assign(query, values);
    changed();
  }

  function show() {
    chips.forEach((chip, place) => chip.setAttribute("aria-pressed", query.filter.includes(shown[place])));
    seat.selectedIndex = seat.names.indexOf(query.seat) + 1;
    model.selectedIndex = model.names.indexOf(query.model) + 1;
    sort.value = query.reverse ? "-" : query.sort;
    if (document.activeElement !== search) search.value = query.text;
  }

  return {
    element: [
      search,
      h("span", { class: "chips" }, chips),
      run.seats.length > 1 && seat,
      models.length > 1 && model,
      sort,
    ],
    search,
    show,
  };
}

/** While this page is shown: say so when there are episodes that it does not show. */
function watch(run, signal) {
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const now = await ask("run", { run: run.name }, signal);
      const fresh = whole(now) - whole(run);
      if (fresh)
        refill(
          document.getElementById("new"),
          h(
            "button",
            { onclick: () => location.reload() },
            fresh > 0 ? `${plural(fresh, "new episode")}: show` : "The run has changed: show it",
          ),
        );
    } catch {} // gone for now; whoever does something next is told
  }, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
}
