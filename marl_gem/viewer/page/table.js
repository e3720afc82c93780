// A table of any length: only the rows that can be seen are made, and fetched in pages.

import { ask, link } from "./api.js";
import { h, refill } from "./dom.js";
import { brief, bytes, count, duration, money } from "./format.js";
import { badge, colour, result } from "./marks.js";

const HEIGHT = 34; // pixels of a row; style.css says the same
const PAGE = 100;
const SEATS = 4; // more seats than this share one column

export function episodeTable({ run, agents, signal, told, sort }) {
  const columns = columnsOf(agents);
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

  async function load(wanted, at) {
    const number = ++load_number;
    query = { ...wanted };
    element.classList.add("loading");
    const [first, place] = await Promise.all([
      ask("episodes", { run: run.name, ...query, start: 0, count: PAGE }, signal),
      at ? ask("place", { run: run.name, key: at, ...query }, signal) : { place: null },
    ]);
    if (number !== load_number) return; // something else was asked for meanwhile
    pages = new Map([[0, first.rows]]);
    total = first.total;
    selected = place.place ?? -1;
    for (const button of names.querySelectorAll("button")) {
      const sorted = button.dataset.sort === query.sort;
      button.dataset.order = sorted ? (query.reverse ? "up" : "down") : "";
    }
    body.style.setProperty("height", `${total * HEIGHT}px`);
    element.scrollTop = selected < 0 ? 0 : selected * HEIGHT - element.clientHeight / 2;
    element.classList.remove("loading");
    told(total);
    draw();
  }

  function draw() {
    const first = Math.max(0, Math.floor(element.scrollTop / HEIGHT) - 8);
    const last = Math.min(total, Math.ceil((element.scrollTop + element.clientHeight) / HEIGHT) + 8);
    const rows = [];
    for (let place = first; place < last; place++) rows.push(rowAt(place));
    refill(
      body,
      rows.length || element.classList.contains("loading")
        ? rows
        : h("p", { class: "empty" }, "No episode is like this."),
    );
  }

  function rowAt(place) {
    const row = pages.get(Math.floor(place / PAGE))?.[place % PAGE];
    if (!row) fetchPage(Math.floor(place / PAGE));
    const shown = h(
      "a",
      {
        class: `row ${place === selected ? "selected" : ""} ${row && marked.includes(row.key) ? "marked" : ""} ${row?.broken ? "broken" : ""}`,
        role: "row",
        href: row && address(row.key),
      },
      row ? (row.broken ? brokenCells(row) : columns.map((column) => cell(column, row))) : null,
    );
    shown.style.setProperty("top", `${place * HEIGHT}px`);
    return shown;
  }

  const address = (key) => link("episode", { run: run.name, key, ...query });
  const cell = (column, row) => h("span", { role: "cell", class: column.kind ?? "" }, column.show(row));
  const brokenCells = (row) => [
    h("span", { class: "number muted" }, row.key),
    h("span", { class: "wide lost" }, `${row.broken} (${bytes(row.size)})`),
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
    const top = selected * HEIGHT;
    const room = element.clientHeight - 3 * HEIGHT;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top > element.scrollTop + room) element.scrollTop = top - room;
    draw();
  }

  const selectedRow = () => pages.get(Math.floor(selected / PAGE))?.[selected % PAGE];

  function mark() {
    const key = selectedRow()?.key;
    if (!key) return;
    marked = marked.includes(key) ? marked.filter((one) => one !== key) : [...marked, key].slice(-2);
    if (marked.length === 2)
      location.hash = link("compare", { run: run.name, key: marked[0], run2: run.name, key2: marked[1] });
    refill(
      marks,
      marked.length === 1 && `Episode ${marked[0]} is marked: mark another with x to see both side by side.`,
    );
    draw();
  }

  return {
    element,
    load,
    keys: [
      ["j ArrowDown", "next episode", () => move(1)],
      ["k ArrowUp", "previous episode", () => move(-1)],
      ["g Home", "first episode", () => move(-total)],
      ["G End", "last episode", () => move(total)],
      ["Enter o", "open the episode", () => selectedRow() && (location.hash = address(selectedRow().key))],
      ["x", "mark the episode; two that are marked are shown side by side", mark],
    ],
  };
}

function columnsOf(agents) {
  const seats =
    agents.length <= SEATS
      ? agents.map((agent) => ({
          name: h("span", { class: `agent ${colour(agents, agent)}` }, agent),
          width: "minmax(92px, 1fr)",
          show: (row) => agent in row.returns && result(row.returns[agent], row.outcomes[agent]),
        }))
      : [{ name: "won by", width: "minmax(160px, 3fr)", show: (row) => winners(row) }];
  return [
    { name: "#", kind: "number", width: "64px", show: (row) => row.key },
    { name: "episode", width: "minmax(96px, 1.4fr)", show: (row) => row.id },
    ...seats,
    { name: "end", width: "minmax(110px, 1.6fr)", show: ending },
    { name: "turns", sort: "turns", kind: "number", width: "72px", show: (row) => count(row.turns) },
    { name: "tokens", sort: "tokens", kind: "number", width: "78px", show: (row) => brief(row.tokens) },
    { name: "cost", sort: "cost", kind: "number", width: "84px", show: (row) => money(row.cost) },
    { name: "time", sort: "seconds", kind: "number", width: "88px", show: (row) => duration(row.seconds) },
  ];
}

const winners = (row) =>
  Object.keys(row.outcomes)
    .filter((agent) => row.outcomes[agent] === "won")
    .join(", ");

/** How an episode ended, where that is not the common way. */
export function ending(row) {
  return [
    row.key.startsWith("e") &&
      badge("error", "failed attempt", "It failed for no fault of its own, and does not count"),
    row.error && badge("error", `${row.error.origin}: ${row.error.type}`, row.error.message.slice(0, 500)),
    row.limit && badge("warn", `limit: ${row.limit}`),
    !row.limit && row.ending === "truncated" && badge("warn", "truncated"),
    row.illegal.length > 0 && badge("warn", "illegal", `Illegal moves by ${row.illegal.join(", ")}`),
  ];
}
