// Two runs side by side: paired differences with intervals, what they took, and the episodes that turned out otherwise.

import { ask, link } from "./api.js";
import { h } from "./dom.js";
import { brief, count, digits, estimated, money, plural, share } from "./format.js";
import { statusBadge } from "./marks.js";
import { estimate } from "./results.js";

const LISTED = 40; // episodes that turned out otherwise, at once

export async function comparisonPage(parameters, signal) {
  const [before, after] = ["run", "run2"].map((name) => parameters.get(name) ?? "");
  const { parts, rows } = await ask("comparison", { run: before, run2: after }, signal);
  const training = rows.every((row) => row.training);
  const side = (row, name) =>
    h(
      "div",
      { class: "card" },
      h("div", { class: "muted small" }, name),
      h("div", { class: "line wraps" }, h("a", { class: "name", href: link("run", { run: row.name }) }, row.name), statusBadge(row.status)),
      h("div", { class: "muted small" }, [row.kind, row.scenarios.join(", "), ...row.seats].filter(Boolean).join(" \u00b7 ")),
    );
  return {
    title: `${before} and ${after}`,
    crumbs: [h("a", { href: "#/?all=1" }, "Runs"), h("b", {}, "two runs")],
    keys: [
      ["s", "swap the runs", () => (location.hash = link("comparison", { run: after, run2: before }))],
      ["u Escape", "all runs", () => (location.hash = "#/?all=1")],
    ],
    content: [
      h(
        "div",
        { class: "head" },
        h("h1", {}, "Two runs"),
        h("a", { class: "button", href: link("comparison", { run: after, run2: before }) }, "Swap"),
        training && h("a", { class: "button", href: link("training", { run: [before, after] }) }, "Curves of both"),
        h("p", { class: "muted wide" }, "The difference is after less before, over the pairs of the same task and seed where there are any. An interval without 0 is a difference that chance rarely makes."),
      ),
      h("div", { class: "cards" }, side(rows[0], "before"), side(rows[1], "after")),
      parts.length > 1 && overview(parts),
      parts.map(partSection),
    ],
    ready: () => scrollTo(0, 0),
  };
}

const anchor = (index) => () => document.getElementById(`part-${index}`)?.scrollIntoView();

/** Of two grids: a row for each match and agent. */
function overview(parts) {
  const rows = parts.flatMap((part, index) =>
    part.comparison
      ? part.comparison.subjects.map((subject) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, h("button", { class: "plain", onclick: anchor(index) }, part.name)),
            h("td", {}, subject.name),
            numbers(subject.success, share, 100),
          ),
        )
      : [h("tr", {}, h("th", { scope: "row" }, part.name), h("td", { colspan: 4, class: "negative" }, part.problem))],
  );
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Success in each match"),
    h("div", { class: "scroll", tabindex: "0" }, h("table", { class: "stats stack" }, header("match", "agent"), h("tbody", {}, rows))),
  );
}

const header = (...first) =>
  h("thead", {}, h("tr", {}, first.map((name) => h("th", { scope: "col" }, name)), ["before", "after", "difference"].map((name) => h("th", { scope: "col", class: "number" }, name))));

const cell = (label, kind, ...children) => h("td", { class: `number ${kind}`, "data-label": label }, children);

/** Three cells: before, after, difference. */
function numbers(found, write, scale) {
  return [cell("before", "", estimate(found.before, write)), cell("after", "", estimate(found.after, write)), cell("difference", verdict(found.difference), difference(found.difference, scale))];
}

const SIGN = (value) => (value > 0 ? "+" : value < 0 ? "\u2212" : "");
const points = (scale) => (value) => `${SIGN(value)}${scale === 100 ? (100 * Math.abs(value)).toFixed(1) : digits(Math.abs(value))}`;

function difference(found, scale) {
  const [value, range] = estimated(found, points(scale));
  return [h("b", {}, value, scale === 100 && found && h("span", { class: "small" }, " points")), range && h("div", { class: "small range" }, range)];
}

/** Better or worse, where the interval does not hold 0. */
const verdict = (found) => (found?.low > 0 ? "positive" : found?.high < 0 ? "negative" : "");

function partSection(part, index) {
  const title = part.name && h("h2", { id: `part-${index}` }, part.name);
  if (!part.comparison) return h("section", { class: "panel" }, title, h("p", { class: "negative" }, part.problem));
  const { before, after, subjects } = part.comparison;
  const rows = subjects.flatMap((subject) => [
    h("tr", { class: "group" }, h("th", { colspan: 4, scope: "rowgroup" }, h("span", { class: "agent" }, subject.name), h("span", { class: "muted small" }, subject.pairs ? ` ${plural(subject.pairs, "pair")}` : " no pairs: other tasks or seeds"))),
    h("tr", {}, h("th", { scope: "row" }, "success"), numbers(subject.success, share, 100)),
    h("tr", {}, h("th", { scope: "row" }, "mean return"), numbers(subject.return, digits, 1)),
  ]);
  return h(
    "section",
    { class: "panel" },
    title,
    h("div", { class: "scroll", tabindex: "0" }, h("table", { class: "stats stack" }, header(""), h("tbody", {}, rows, costs(before, after)))),
    alike(subjects).map((members) => flips(part, members)),
    part.left_out > 0 && h("p", { class: "muted small" }, `${plural(part.left_out, "more episode")} turned out otherwise.`),
  );
}

/** What each run took. */
function costs(before, after) {
  const known = before.cost != null && after.cost != null;
  const row = (name, write, of, less) =>
    h("tr", {}, h("th", { scope: "row" }, name), cell("before", "", write(of(before))), cell("after", "", write(of(after))), cell("difference", "", less));
  const change = (of, write) => `${SIGN(of(after) - of(before))}${write(Math.abs(of(after) - of(before)))}`;
  const line = (name, write, of) => row(name, write, of, change(of, write));
  return [
    h("tr", { class: "group" }, h("th", { colspan: 4, scope: "rowgroup" }, "all agents")),
    line("episodes", count, (run) => run.episodes),
    line("turns per episode", (value) => value.toFixed(1), (run) => run.turns),
    line("tokens", brief, (run) => run.tokens),
    row("cost", (value) => (value == null ? "unknown" : money(value)), (run) => run.cost, known ? change((run) => run.cost, money) : "\u2013"),
  ];
}

/** Subjects with the same flips, such as the agents of a task that they solve together. */
function alike(subjects) {
  const groups = new Map();
  for (const subject of subjects) {
    const key = JSON.stringify([subject.gained, subject.lost]);
    groups.set(key, [...(groups.get(key) ?? []), subject]);
  }
  return [...groups.values()];
}

/** The episodes in which subjects succeeded in one run alone, with both, and side by side. */
function flips(part, members) {
  const [subject] = members;
  const names = members.length > 4 ? `${members.length} agents` : members.map(({ name }) => name).join(", ");
  return [
    ["only after", subject.gained, "positive"],
    ["only before", subject.lost, "negative"],
  ]
    .filter(([, found]) => found.length)
    .map(([word, found, kind]) => {
      const list = h("ul", { class: "flips" });
      let shown = 0;
      const more = h("button", { class: "quiet small", onclick: unfold });
      function unfold() {
        list.append(...found.slice(shown, (shown += LISTED)).map((flip) => flipLine(part, flip)));
        more.hidden = shown >= found.length;
        more.textContent = `Show ${count(Math.min(LISTED, found.length - shown))} more`;
      }
      unfold();
      return h(
        "details",
        { class: "flipped", open: found.length <= LISTED },
        h("summary", {}, h("span", { class: "agent" }, names), members.length > 1 ? " succeed " : " succeeds ", h("b", { class: kind }, word), `: ${plural(found.length, "episode")}`),
        list,
        more,
      );
    });
}

function flipLine(part, flip) {
  return h(
    "li",
    {},
    h("a", { href: link("compare", { run: part.before, key: flip.before, run2: part.after, key2: flip.after }), title: "both, side by side" }, flip.id),
    h("span", { class: "small" }, h("a", { href: link("episode", { run: part.before, key: flip.before }) }, "before"), " ", h("a", { href: link("episode", { run: part.after, key: flip.after }) }, "after")),
  );
}
