// A table of any length: only visible rows are drawn, and rows are fetched in pages.

import { ask, link } from "./api.js";
import { h, refill } from "./dom.js";
import { brief, bytes, count, duration, money } from "./format.js";
import { badge, colour, result } from "./marks.js";
import { roleOf } from "./results.js";

const WIDE = 34; // pixels of a row; style.css says the same
const TALL = 104; // of a row in a narrow window, which has a line for each group of columns
const NARROW = matchMedia("(max-width: 760px)");
const PAGE = 100;
const EMPTY = 120; // pixels of a table without rows, which says so
const SEATS = 4; // more agents than this are counted by role

/** The first rows of a table, as the server answers them. */
export const firstRows = (run, query, signal) => ask("episodes", { run, ...query, start: 0, count: PAGE }, signal);

export function episodeTable({ run, agents, signal, counted, sort }) {
  const columns = columnsOf(run, agents);
  const names = h("div", { class: "row names" }, columns.map(nameOf));
  const body = h("div", { class: "rows" });
  const marks = h("div", { class: "marks" });
  const element = h("div", { class: "table", role: "table", "aria-label": "Episodes" }, names, body, marks);
  element.style.setProperty("--columns", columns.map((column) => column.width).join(" "));
  element.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  new ResizeObserver(() => draw()).observe(element);

  let query = {};
  let pages = new Map();
  let total = 0;
  let selected = -1;
  let marked = [];
  let load_number = 0;
  let height = NARROW.matches ? TALL : WIDE;
  NARROW.addEventListener("change", resize, { signal });

  /** A table is as high as its rows, and at most as the room that there is. */
  function stretch() {
    body.style.setProperty("height", `${total * height}px`);
    element.style.setProperty("--full", `${Math.max(total * height, EMPTY) + WIDE + 4}px`);
  }

  function resize() {
    const first = element.scrollTop / height;
    height = NARROW.matches ? TALL : WIDE;
    stretch();
    element.scrollTop = first * height;
    draw();
  }

  function nameOf(column) {
    if (!column.sort) return h("span", { class: column.kind ?? "", title: column.title }, column.name);
    return h(
      "button",
      {
        class: column.kind ?? "",
        title: `Sort by ${column.name}`,
        onclick: () => sort(column.sort),
        "data-sort": column.sort,
      },
      column.name,
    );
  }

  async function load(wanted, at, rows = firstRows(run.name, wanted, signal)) {
    const number = ++load_number;
    query = { ...wanted };
    element.classList.add("loading");
    const [first, position] = await Promise.all([
      rows,
      at ? ask("position", { run: run.name, key: at, ...query }, signal) : { index: null },
    ]);
    if (number !== load_number) return; // a newer query has begun
    pages = new Map([[0, first.rows]]);
    total = first.total;
    selected = position.index ?? -1;
    for (const button of names.querySelectorAll("button")) {
      const sorted = button.dataset.sort === query.sort;
      button.dataset.order = sorted ? (query.reverse ? "up" : "down") : "";
    }
    stretch();
    element.scrollTop = selected < 0 ? 0 : selected * height - element.clientHeight / 2;
    element.classList.remove("loading");
    counted(total);
    draw();
  }

  /** Show what there is now, at the same place: fetch all pages again that there are. */
  async function refresh() {
    const into = pages;
    const numbers = [...pages.keys()];
    const answers = await Promise.all(
      numbers.map((number) =>
        ask("episodes", { run: run.name, ...query, start: number * PAGE, count: PAGE }, signal),
      ),
    );
    if (into !== pages || !numbers.length) return; // a newer query has begun
    numbers.forEach((number, index) => pages.set(number, answers[index].rows));
    total = answers[0].total;
    stretch();
    counted(total);
    draw();
  }

  function draw() {
    const first = Math.max(0, Math.floor(element.scrollTop / height) - 8);
    const last = Math.min(total, Math.ceil((element.scrollTop + element.clientHeight) / height) + 8);
    const rows = [];
    for (let index = first; index < last; index++) rows.push(rowAt(index));
    refill(
      body,
      rows.length || element.classList.contains("loading")
        ? rows
        : h("p", { class: "empty" }, "No episode fits these filters."),
    );
  }

  function rowAt(index) {
    const row = pages.get(Math.floor(index / PAGE))?.[index % PAGE];
    if (!row) fetchPage(Math.floor(index / PAGE));
    const shown = h(
      "a",
      {
        class: `row ${index === selected ? "selected" : ""} ${row && marked.includes(row.key) ? "marked" : ""} ${row?.broken ? "broken" : ""}`,
        role: "row",
        href: row && address(row.key),
      },
      row ? (row.broken ? brokenCells(row) : NARROW.matches ? narrowLines(row) : columns.map((column) => cell(column, row))) : null,
    );
    shown.style.setProperty("top", `${index * height}px`);
    return shown;
  }

  const address = (key) => link("episode", { run: run.name, key, ...query });
  const cell = (column, row) => h("span", { role: "cell", class: column.kind ?? "", title: column.about?.(row) }, column.show(row));

  /** In a narrow window a row has four lines: what it is, the seats, how it ended, the numbers. */
  const narrowLines = (row) =>
    ["id", "seat", "end", "number"].map((line) =>
      h(
        "span",
        { class: `cells ${line}` },
        columns
          .filter((column) => column.line === line)
          .map((column) => {
            const shown = [column.show(row)].flat(2).filter((part) => part != null && part !== false && part !== "");
            return shown.length > 0 && h("span", { role: "cell", title: column.about?.(row) }, column.label !== false && h("span", { class: "muted" }, column.name.cloneNode?.(true) ?? column.name, " "), shown);
          }),
      ),
    );

  const brokenCells = (row) => [
    h("span", { class: "number muted" }, row.key),
    h("span", { class: "wide negative" }, `${row.broken} (${bytes(row.size)})`),
  ];

  async function fetchPage(number) {
    if (pages.has(number)) return;
    const into = pages;
    into.set(number, []);
    const answer = await ask("episodes", { run: run.name, ...query, start: number * PAGE, count: PAGE }, signal);
    into.set(number, answer.rows);
    if (into === pages) draw();
  }

  function move(step) {
    selected = Math.min(total - 1, Math.max(0, selected + step));
    const top = selected * height;
    const room = element.clientHeight - 3 * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top > element.scrollTop + room) element.scrollTop = top - room;
    draw();
  }

  const selectedRow = () => pages.get(Math.floor(selected / PAGE))?.[selected % PAGE];

  function mark() {
    const key = selectedRow()?.key;
    if (!key) return;
    marked = marked.includes(key) ? marked.filter((other) => other !== key) : [...marked, key].slice(-2);
    if (marked.length === 2)
      location.hash = link("compare", { run: run.name, key: marked[0], run2: run.name, key2: marked[1] });
    refill(
      marks,
      marked.length === 1 && `Episode ${marked[0]} is marked: mark another with x to compare them.`,
    );
    draw();
  }

  return {
    element,
    load,
    refresh,
    keys: [
      ["j ArrowDown", "next episode", () => move(1)],
      ["k ArrowUp", "previous episode", () => move(-1)],
      ["g Home", "first episode", () => move(-total)],
      ["G End", "last episode", () => move(total)],
      ["Enter o", "open the episode", () => selectedRow() && (location.hash = address(selectedRow().key))],
      ["x", "mark the episode; two marked episodes are compared", mark],
    ],
  };
}

/** The columns: `show` makes a cell of a row, `about` says more when it is pointed at, `line` is its line in a narrow window. */
function columnsOf(run, agents) {
  const graded = (run.results?.grades ?? []).length > 0;
  const number = (name, sort, width, show) => ({ name, sort, kind: "number", width, show, line: "number" });
  return [
    { name: "#", kind: "number", width: "64px", show: (row) => row.key, line: "id" },
    { name: "episode", width: "minmax(96px, 1.2fr)", show: (row) => row.id, about: (row) => row.id, line: "id", label: false },
    run.tasks > 1 && { name: "task", sort: "task", kind: "number", width: "58px", show: (row) => row.task, line: "id" },
    graded && { name: "grade", width: "minmax(80px, 1fr)", show: (row) => row.grade, about: (row) => row.grade, line: "id", label: false },
    ...seatColumns(agents),
    { name: "end", width: "minmax(120px, 2fr)", show: endOf, about: reasonsOf, line: "end", label: false },
    number("turns", "turns", "72px", (row) => count(row.turns)),
    number("tokens", "tokens", "78px", (row) => brief(row.tokens)),
    number("cost", "cost", "84px", (row) => money(row.cost)),
    number("time", "seconds", "88px", (row) => duration(row.seconds)),
  ].filter(Boolean);
}

/** A column for each seat; of many, one for each role, with how many succeeded. */
function seatColumns(agents) {
  if (agents.length <= SEATS)
    return agents.map((agent) => ({
      name: h("span", { class: `agent ${colour(agents, agent)}` }, agent),
      width: "minmax(92px, 1fr)",
      line: "seat",
      show: (row) => (agent in row.returns ? result(row.returns[agent], row.outcomes[agent]) : "\u2013"),
    }));
  const roles = [...new Set(agents.map(roleOf))];
  if (roles.length <= SEATS)
    return roles.map((role) => roleColumn(h("span", { class: "agent" }, role), agents.filter((agent) => roleOf(agent) === role)));
  return [roleColumn("succeeded", agents)];
}

const roleColumn = (name, members) => ({
  name,
  width: "minmax(110px, 1fr)",
  line: "seat",
  about: (row) => `succeeded: ${members.filter((agent) => row.outcomes[agent]?.success).join(", ") || "nobody"}`.slice(0, 2000),
  show: (row) => {
    const judged = members.filter((agent) => row.outcomes[agent]);
    const solved = judged.filter((agent) => row.outcomes[agent].success);
    return judged.length === 0 ? "\u2013" : `${count(solved.length)} of ${count(judged.length)}`;
  },
});

/** Why agents did not succeed, agents with the same reason together. */
function reasonsOf(row) {
  const reasons = new Map();
  for (const [agent, { reason }] of Object.entries(row.outcomes)) if (reason) reasons.set(reason, [...(reasons.get(reason) ?? []), agent]);
  return [...reasons].map(([reason, agents]) => `${reason}: ${agents.join(", ")}`).join("; ").slice(0, 2000);
}

const reasonTexts = (row) => [...new Set(Object.values(row.outcomes).map(({ reason }) => reason).filter(Boolean))];

/** How an episode ended: its badges and reasons, or else the plain word. */
function endOf(row) {
  const parts = ending(row).flat().filter(Boolean);
  return parts.length ? parts : h("span", { class: "muted" }, row.ending);
}

/** Badges for an episode with an error, a limit or illegal moves. */
export function ending(row) {
  return [
    row.key.startsWith("e") &&
      badge("error", "failed attempt", "It failed because of infrastructure, and does not count"),
    row.error && badge("error", `${row.error.origin}: ${row.error.type}`, row.error.message.slice(0, 500)),
    row.limit && badge("warn", `limit: ${row.limit}`),
    !row.limit && row.ending === "truncated" && badge("warn", "truncated"),
    reasonTexts(row)
      .filter((reason) => !(row.limit && reason === `cut by ${row.limit}`) && reason !== "truncated")
      .slice(0, 3)
      .map((reason) => h("span", { class: "reason" }, reason)),
    Object.keys(row.illegal).length > 0 &&
      badge("warn", "illegal", `Illegal moves by ${Object.keys(row.illegal).join(", ")}`),
  ];
}
