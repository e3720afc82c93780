// What a report says: trivial baselines, pass^k, results by grade and by task, the table of a grid, a tournament.

import { link } from "./api.js";
import { lineChart } from "./curves.js";
import { h } from "./dom.js";
import { brief, count, estimated, money, percent, plural, share, signed } from "./format.js";
import { colour, successWord, bar } from "./marks.js";

const CARDS = 6; // more agents than this are shown by role

/** Sections for a report; `narrow(changes)` shows the episodes that fit. Nothing where there is no report. */
export function resultSections(run, agents, narrow) {
  const found = run.results;
  if (!found) return [];
  return [
    found.so_far && soFar(found),
    found.errors.length > 0 && failures(found),
    found.grid && gridTable(run, found),
    ...(found.tournament ? tournament(found.tournament) : []),
    Object.keys(found.baselines).length > 0 && baselines(found.baselines),
    Object.keys(found.budget).length > 0 && budget(found.budget),
    found.grades.length > 0 && grades(found, agents, narrow),
    found.tags.length > 0 && tags(found),
    ...passes(found.passes, agents),
    found.tasks.length > 0 && tasks(found.tasks, narrow),
  ].filter(Boolean);
}

const section = (title, ...children) => h("section", { class: "panel" }, h("h2", {}, title), children);

const scroll = (...children) => h("div", { class: "scroll", tabindex: "0" }, children);

/** A mean with its interval below. */
export function estimate(found, write) {
  const [value, range] = estimated(found, write);
  return [h("b", {}, value), range && h("div", { class: "muted small range" }, range)];
}

function failures(found) {
  const rows = found.errors.map((error) =>
    h("li", {}, h("b", {}, `${count(error.count)} \u00d7 ${error.origin}: ${error.type}`), error.agent && ` (${error.agent})`, h("div", { class: "text small" }, error.message)),
  );
  return section(`What failed: ${plural(found.pending, "episode")} pending`, h("ul", { class: "failures" }, rows));
}

const baselines = (found) =>
  h(
    "p",
    { class: "baselines" },
    h("span", { class: "muted" }, "Trivial baselines on the same tasks: "),
    Object.entries(found).map(([name, value], index) => [index ? ", " : "", name, " ", h("b", {}, share(value))]),
  );

/** Of a run without a report: how much of it there is. */
function soFar(found) {
  const played = found.planned - found.pending;
  return h("p", { class: "baselines sofar" }, meter(played, found.planned), h("span", {}, `So far ${count(played)} of ${plural(found.planned, "episode")}`));
}

const meter = (used, limit) => h("meter", { min: 0, max: limit, value: Math.min(used ?? 0, limit), "aria-hidden": "true" });

/** The limits of a run, and what is used of them. */
function budget(found) {
  const rows = Object.entries(found).map(([name, { limit, used }]) => {
    const write = name === "cost" ? money : count;
    const over = used != null && used > limit;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      h("td", { class: "number nowrap" }, h("b", { class: over ? "negative" : "" }, used == null ? "unknown" : write(used)), ` of ${write(limit)}`),
      h("td", {}, meter(used, limit)),
      h("td", { class: "number" }, used == null ? "\u2013" : percent(used, limit)),
    );
  });
  return section("Budget", scroll(h("table", { class: "stats" }, h("tbody", {}, rows))), h("p", { class: "muted small" }, "Used of the limits of the last call; failed attempts count as well."));
}

/** Results by team and role, and by player if there are several. */
function tags(found) {
  const players = found.tags.some((row) => row.player);
  const rows = found.tags.map((row) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("span", { class: "muted small" }, `${row.tag} `), row.name),
      players && h("td", { "data-label": "player" }, row.player),
      h("td", { class: "number", "data-label": found.measure }, estimate(row.success)),
      h("td", { class: "number", "data-label": "mean return" }, estimate(row.return, (value) => signed(Number(value.toFixed(3))))),
      h("td", { class: "number", "data-label": "agents" }, count(row.success.n)),
    ),
  );
  const names = ["", ...(players ? ["player"] : []), found.measure, "mean return", "agents"];
  const head = names.map((name, index) => h("th", { scope: "col", class: index >= names.length - 3 ? "number" : "" }, name));
  const kinds = [...new Set(found.tags.map((row) => row.tag))];
  return section(`By ${kinds.join(" and ")}`, scroll(h("table", { class: "stats stack" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))), h("p", { class: "muted small" }, "Every agent of an episode counts once."));
}

/** Agents whose values are the same share a column: [[agents, value], ...]. */
function alike(values) {
  const groups = new Map();
  for (const [agent, value] of Object.entries(values)) {
    const text = JSON.stringify(value);
    groups.set(text, [[...(groups.get(text)?.[0] ?? []), agent], value]);
  }
  return [...groups.values()];
}

const names = (agents, all) =>
  agents.length > 4
    ? [`${plural(agents.length, "agent")}`]
    : agents.map((agent, index) => [index ? ", " : "", h("span", { class: `agent ${colour(all, agent)}` }, agent)]);

function grades(found, agents, narrow) {
  const present = [...new Set(found.grades.flatMap((row) => Object.keys(row.success)))];
  const columns = alike(Object.fromEntries(present.map((agent) => [agent, found.grades.map((row) => row.success[agent])])));
  const rows = found.grades.map((row, index) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("button", { class: "chip", title: "Show its episodes", onclick: () => narrow({ grade: row.grade }) }, row.grade)),
      h("td", { class: "number" }, count(row.tasks)),
      columns.map(([, values]) => h("td", { class: "number" }, estimate(values[index]))),
    ),
  );
  return section(
    `By grade: ${found.measure}`,
    scroll(
      h(
        "table",
        { class: "stats" },
        h("thead", {}, h("tr", {}, h("th", {}, "grade"), h("th", { class: "number" }, "tasks"), columns.map(([members]) => h("th", { class: "number" }, names(members, agents))))),
        h("tbody", {}, rows),
      ),
    ),
  );
}

function passes(found, agents) {
  return alike(found).map(([members, values]) => {
    const line = (name, of, kind) => ({
      name,
      kind,
      points: values.map((value) => [value.k, value[of].mean]),
      band: values.filter((value) => value[of].low != null).map((value) => [value.k, value[of].low, value[of].high]),
    });
    const rows = values.map((value) =>
      h("tr", {}, h("th", { scope: "row", class: "number" }, value.k), h("td", { class: "number" }, estimate(value.hat)), h("td", { class: "number" }, estimate(value.at))),
    );
    return section(
      ["pass^k of ", names(members, agents)],
      h("p", { class: "muted small" }, "pass^k: all of k tries at a task succeed. pass@k: at least one does."),
      h(
        "div",
        { class: "passes" },
        values.length > 1 && lineChart({ title: "", unit: "k", start: 1, range: [0, 1], lines: [line("pass^k", "hat", "c0"), line("pass@k", "at", "c1 d1")] }),
        scroll(h("table", { class: "stats" }, h("thead", {}, h("tr", {}, ["k", "pass^k", "pass@k"].map((name) => h("th", { class: "number" }, name)))), h("tbody", {}, rows))),
      ),
    );
  });
}

/** Every task as a small button, coloured by its share of successes; it shows the task's episodes. */
function tasks(found, narrow) {
  const share = (row) => Object.values(row.solved).map(([solved, tries]) => solved / tries);
  const buttons = found.map((row) => {
    const shares = share(row);
    const mean = shares.reduce((sum, value) => sum + value, 0) / (shares.length || 1);
    const lines = Object.entries(row.solved).map(([agent, [solved, tries]]) => {
      const why = Object.entries(row.reasons[agent] ?? {}).map(([reason, times]) => `${reason} ${times}`);
      return `${agent} ${solved} of ${tries}${why.length ? ` (${why.join(", ")})` : ""}`;
    });
    const about = [`task ${row.task}`, row.grade, ...lines.slice(0, 8)].filter(Boolean).join("; ");
    const button = h("button", { class: "task", title: about, "aria-label": about, onclick: () => narrow({ task: String(row.task) }) }, String(row.task));
    button.style.setProperty("--share", `${Math.round(100 * mean)}%`);
    return button;
  });
  const always = found.filter((row) => share(row).every((value) => value === 1)).length;
  const never = found.filter((row) => share(row).every((value) => value === 0)).length;
  return h(
    "details",
    { class: "panel tasks" },
    h("summary", {}, `${plural(found.length, "task")}: ${always} always solved, ${found.length - always - never} sometimes, ${never} never`),
    h("div", { class: "taskgrid" }, buttons),
  );
}

function gridTable(run, found) {
  const { agent, row_agents, rows, columns, cells } = found.grid;
  const at = (row, column) => cells.find((cell) => cell.row === row && cell.column === column);
  const body = rows.map((row) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, row || "all"),
      columns.map((column) => gridCell(run, at(row, column), found)),
    ),
  );
  return section(
    [`${found.measure} of `, h("span", { class: "agent" }, agent), row_agents.length > 0 && [", by ", row_agents.join(", ")]],
    scroll(
      h(
        "table",
        { class: "stats stack grid" },
        h(
          "thead",
          {},
          h("tr", {}, h("th", { class: "muted" }, `${row_agents.join(", ")} \u2193 ${agent} \u2192`), columns.map((column) => h("th", { scope: "col" }, column))),
        ),
        h("tbody", {}, body),
      ),
    ),
    h("p", { class: "muted small" }, "The share, and its 95% interval. A cell leads to its episodes."),
  );
}

function gridCell(run, cell, found) {
  if (!cell) return h("td", {}, "\u2013");
  const name = run.matches.find((name) => name === cell.folder || name.endsWith(`/${cell.folder}`));
  const why = Object.entries(cell.reasons).map(([reason, times]) => `${reason} ${times}`);
  const about = [plural(cell.episodes, "episode"), cell.return && `mean return ${signed(Number(cell.return.mean.toFixed(3)))}`, why.length > 0 && `not: ${why.join(", ")}`];
  const text = estimate(cell.success);
  const shown = h("td", { class: "cell", "data-label": cell.column, title: about.filter(Boolean).join("; ") }, name ? h("a", { href: link("run", { run: name }) }, text) : text);
  shown.style.setProperty("--share", `${Math.round(100 * (cell.success?.mean ?? 0))}%`);
  return shown;
}

function tournament(found) {
  const { players, matrix, seats, scale, left_out } = found;
  const rating = (player) => player.rating && estimate({ ...player.rating, mean: player.rating.value }, (value) => String(Math.round(value)));
  const standings = players.map((player, index) =>
    h(
      "tr",
      {},
      h("td", { class: "number", "data-label": "" }, index + 1),
      h("th", { scope: "row" }, player.name, h("div", { class: "muted small" }, player.who)),
      ["rating", "score", "won / drawn / lost", "tokens", "cost"].map((label, column) =>
        h(
          "td",
          { class: "number", "data-label": label },
          [
            () => rating(player) || "\u2013",
            () => estimate(player.score),
            () => `${count(player.won)} / ${count(player.drawn)} / ${count(player.lost)}`,
            () => brief(player.tokens.prompt + player.tokens.completion),
            () => money(player.cost),
          ][column](),
        ),
      ),
    ),
  );
  const against = players.map(({ name }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      players.map((other) => {
        const value = matrix[name]?.[other.name];
        const shown = h("td", { class: value ? "cell" : "", "data-label": other.name === name ? "" : other.name }, value ? estimate(value) : "\u2013");
        if (value) shown.style.setProperty("--share", `${Math.round(100 * value.mean)}%`);
        return shown;
      }),
    ),
  );
  const head = (titles) => h("thead", {}, h("tr", {}, titles));
  return [
    section(
      "Standings",
      scroll(
        h(
          "table",
          { class: "stats stack" },
          head([h("th", {}, ""), h("th", {}, "player"), ["rating", "score", "won / drawn / lost", "tokens", "cost"].map((name) => h("th", { class: "number" }, name))]),
          h("tbody", {}, standings),
        ),
      ),
      h("p", { class: "muted small" }, left_out || `Rating: ${scale}`),
    ),
    section(
      "Score of the row's player against the column's",
      scroll(h("table", { class: "stats stack grid" }, head([h("th", {}, ""), players.map(({ name }) => h("th", { scope: "col" }, name))]), h("tbody", {}, against))),
      h("p", { class: "muted small" }, "By seat: ", Object.entries(seats).map(([seat, value], index) => [index ? ", " : "", seat, " ", estimated(value)[0]])),
    ),
  ];
}

// Agents

/** A card for each agent or, of many, for each role: agents with the same name but for its number, and the same policy. */
export function agentCards(run, agents) {
  const cards = run.agents.length <= CARDS ? run.agents.map((agent) => card(run, agent, agents)) : roles(run.agents).map((role) => roleCard(run, role, agents));
  return h("div", { class: "cards" }, cards);
}

/** An agent's name without its number. */
export const roleOf = (agent) => agent.replace(/[\s_-]*\d+$/, "") || agent;

function roles(found) {
  const groups = new Map();
  for (const agent of found) {
    const key = JSON.stringify([roleOf(agent.agent), Object.keys(agent.models)]);
    groups.set(key, [...(groups.get(key) ?? []), agent]);
  }
  return [...groups.values()];
}

const policies = (agent) => Object.keys(agent.models).join(", ") || "no model";

const rounded = (value) => (typeof value === "number" ? Number(value.toFixed(3)) : value);

/** The agent's share of successes; of many models, those of its policy. */
function card(run, agent, agents) {
  const [, range] = estimated(run.results?.success[agent.agent]);
  return h(
    "div",
    { class: `card ${colour(agents, agent.agent)}` },
    h(
      "div",
      { class: "line wraps" },
      h("span", { class: "agent" }, agent.agent),
      h("span", { class: "muted" }, policies(agent)),
      h("span", { class: "spring" }),
      h("span", { class: "nowrap" }, h("b", {}, agent.episodes ? share(agent.successes / agent.episodes) : "\u2013"), range && h("span", { class: "muted small" }, ` ${range}`), ` ${successWord(agent)}`),
    ),
    bar(agent),
    h(
      "div",
      { class: "line wraps muted small" },
      h("span", {}, "mean return ", h("b", {}, signed(rounded(agent.mean_return)))),
      agent.illegal > 0 && h("span", { class: "warning" }, `illegal in ${share(agent.illegal / run.episodes)}`),
    ),
  );
}

function roleCard(run, members, agents) {
  const total = { ...members[0] };
  for (const name of ["episodes", "contests", "successes", "wins", "draws", "losses", "illegal"]) total[name] = members.reduce((sum, agent) => sum + agent[name], 0);
  const mean = members.reduce((sum, agent) => sum + agent.mean_return * agent.episodes, 0) / (total.episodes || 1);
  const lines = members.map((agent) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: `agent ${colour(agents, agent.agent)}` }, agent.agent),
      h("td", { class: "number" }, agent.episodes ? share(agent.successes / agent.episodes) : "\u2013"),
      h("td", { class: "number" }, signed(rounded(agent.mean_return))),
      h("td", { class: "number" }, count(agent.illegal)),
    ),
  );
  const head = ["agent", successWord(total), "mean return", "illegal"].map((name, index) => h("th", { class: index ? "number" : "" }, name));
  return h(
    "div",
    { class: `card ${colour(agents, members[0].agent)}` },
    h(
      "div",
      { class: "line wraps" },
      h("span", { class: "agent" }, members.length > 1 ? `${roleOf(members[0].agent)} \u00d7 ${members.length}` : members[0].agent),
      h("span", { class: "muted" }, policies(members[0])),
      h("span", { class: "spring" }),
      h("span", { class: "nowrap" }, h("b", {}, total.episodes ? share(total.successes / total.episodes) : "\u2013"), ` ${successWord(total)}`),
    ),
    bar(total),
    h("div", { class: "line wraps muted small" }, h("span", {}, "mean return ", h("b", {}, signed(rounded(mean))))),
    members.length > 1 &&
      h("details", { class: "small" }, h("summary", {}, `all ${members.length}`), scroll(h("table", { class: "stats" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, lines)))),
  );
}
