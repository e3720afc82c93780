// One episode: why it failed, its facts, its rewards and its turns.

import { rewardChart } from "./chart.js";
import { h } from "./dom.js";
import { brief, bytes, count, duration, money } from "./format.js";
import { badge, colour, result } from "./marks.js";
import { ending } from "./table.js";
import { FEW, answersOf, endCards, grouped, groupsOf, roleCards, roundEnd, turnCards } from "./turns.js";

const AT_ONCE = 100; // so many turns are drawn before the page is shown; the others follow

/**
 * A pane with an episode, in the form of the server's answer.
 *
 * `agent` is the agent whose view is shown, "" for all agents. `choose(agent)` is called when another view is chosen and
 * `selected(number)` when a turn is selected. `address(number)` is the address of a turn. `difference` is the first turn
 * that differs from the episode beside it. With `heading` the facts begin with a heading.
 */
export function episodePane(episode, options) {
  if (episode.broken) return brokenPane(episode, options);
  const { agent = "", choose, selected: onSelected } = options;
  const agents = agentsOf(episode);
  const turns = agent ? episode.turns.filter((turn) => turn.agent === agent) : episode.turns;
  const cards = new Map();
  const list = h("ol", { class: agent ? "turns single-agent" : "turns" });
  const chart = rewardChart(agents, episode.turns, (number) => select(number));
  const context = { ...options, agent, episode, agents, select, answers: answersOf(episode) };
  let selected = 0;

  function add(start, end) {
    const made = turnCards(turns.slice(start, end), context);
    for (const [number, card] of made.cards) cards.set(number, card);
    list.append(...made.elements);
  }

  function addAll() {
    if (cards.size < turns.length) add(cards.size, turns.length);
    if (!list.dataset.complete) list.append(...endCards(context));
    list.dataset.complete = "yes";
  }

  function select(number, scroll = true) {
    if (!cards.has(number)) addAll();
    cards.get(selected)?.classList.remove("selected");
    const card = cards.get(number) ?? cards.get(turns.find((turn) => turn.number >= number)?.number);
    if (!card) return;
    selected = Number(card.dataset.number);
    card.classList.add("selected");
    card.closest("details.group")?.setAttribute("open", "");
    if (scroll) card.scrollIntoView({ block: "nearest" });
    chart.mark(episode.turns[selected - 1]);
    onSelected?.(selected);
  }

  function move(step) {
    const index = turns.findIndex((turn) => turn.number === selected);
    const next = turns[Math.min(turns.length - 1, Math.max(0, index + step))];
    if (next) select(next.number);
  }

  list.append(...roleCards(episode, agents, agent));
  add(0, roundEnd(turns, AT_ONCE));
  if (cards.size < turns.length) setTimeout(addAll);
  else addAll();
  return {
    element: h(
      "article",
      { class: agents.length > FEW ? "pane many" : "pane" },
      why(episode, agents, select),
      h("div", { class: "facts" }, facts(episode, agents, options), views(episode, agents, agent, choose), chart.element),
      list,
    ),
    select,
    move,
    selected: () => selected,
    unfold: () => {
      addAll();
      unfold(list.parentElement);
    },
  };
}

/** All agents of an episode, also those without a return because an error ended the episode early. */
export const agentsOf = (episode) => [
  ...new Set([
    ...Object.keys({ ...episode.returns, ...episode.models }),
    ...(episode.turns ?? []).map((turn) => turn.agent),
  ]),
];

/** What is at the top of a page about an episode: its id, and how it ended. */
export const title = (episode) => [
  h("h1", { dir: "auto", title: episode.id ?? episode.key }, episode.broken ? `Line ${episode.key}` : `Episode ${episode.id}`),
  episode.broken
    ? badge("error", "no episode")
    : h("span", { class: "badges" }, badge(episode.ending === "error" ? "error" : "plain", episode.ending), ending(episode)),
];

function brokenPane(episode, { heading }) {
  const element = h(
    "article",
    { class: "pane" },
    h(
      "div",
      { class: "facts" },
      heading && title(episode),
      h("p", { class: "negative" }, episode.broken),
      h("p", { class: "muted" }, `${episode.file}, ${bytes(episode.size)}`),
    ),
    h("pre", { class: "raw" }, episode.raw),
  );
  const nothing = () => {};
  return { element, select: nothing, move: nothing, selected: () => 0, unfold: nothing };
}

const HEADINGS = { error: "Error", limit: "Cut short", failure: "Failed", illegal: "Illegal move" };

/** Why the episode did not succeed. */
function why(episode, agents, select) {
  if (!episode.reasons.length) return null;
  const item = (reason) =>
    h(
      "li",
      { class: reason.kind },
      h("b", {}, HEADINGS[reason.kind]),
      reason.agents?.length > 0 && h("span", {}, names(reason.agents, episode, agents)),
      reason.turn > 0 && h("button", { class: "quiet small", onclick: () => select(reason.turn) }, `turn ${reason.turn}`),
      reason.kind === "error" ? h("pre", {}, reason.text) : h("span", { dir: "auto" }, reason.text),
      reason.checks?.length > 0 && h("ul", {}, reason.checks.map((check) => h("li", { dir: "auto" }, check))),
    );
  return h("section", { class: "whybox", "aria-label": "Why it failed" }, h("ul", {}, episode.reasons.map(item)));
}

const names = (some, episode, agents) =>
  some.length > FEW
    ? [...groupsOf(episode, some)].map(([name, members]) => `${name} \u00d7 ${members.length}`).join(", ")
    : some.flatMap((agent, index) => [index ? ", " : "", h("span", { class: `agent ${colour(agents, agent)}` }, agent)]);

function facts(episode, agents, { heading }) {
  const seat = (agent) =>
    h(
      "li",
      { class: colour(agents, agent) },
      h("span", { class: "agent" }, agent),
      agent in episode.returns && result(episode.returns[agent], episode.outcomes[agent]),
      h("span", { class: "muted models" }, episode.models[agent]),
    );
  const small = [
    ["seed", episode.seed + (episode.repeat ? `, repeat ${episode.repeat}` : "")],
    ["turns", count(episode.turns.length)],
    ["tokens", brief(episode.tokens)],
    ["cost", episode.cost == null ? "unknown" : money(episode.cost)],
    ["time", duration(episode.seconds)],
  ];
  return [
    heading && title(episode),
    h(
      "p",
      { class: "muted small" },
      episode.scenario,
      " \u00b7 ",
      episode.file,
      ", line ",
      episode.key.replace("e", ""),
    ),
    h("ul", { class: "seatlist" }, grouped(episode, agents, seat)),
    h(
      "dl",
      { class: "small" },
      small.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
    episode.options &&
      h("details", { class: "small" }, h("summary", {}, "options of the scenario"), h("pre", {}, episode.options)),
  ];
}

/** The choice of whose view is shown: buttons, or a list for many agents. */
function views(episode, agents, agent, choose) {
  if (agents.length > FEW) {
    const option = (name, text) => h("option", { value: name, selected: name === agent }, text);
    const select = h(
      "select",
      { "aria-label": "View", onchange: () => choose?.(agentsIn(select)) },
      option("", "All agents"),
      [...groupsOf(episode, agents)].map(([name, members]) =>
        h("optgroup", { label: name }, members.map((member) => option(member, member))),
      ),
    );
    const order = ["", ...[...groupsOf(episode, agents).values()].flat()];
    const agentsIn = (chosen) => order[chosen.selectedIndex];
    return h("div", { class: "views" }, select);
  }
  const button = (name, text) =>
    h(
      "button",
      { "aria-pressed": String(name === agent), class: name && colour(agents, name), onclick: () => choose?.(name) },
      text,
    );
  return h(
    "div",
    { class: "views", role: "group", "aria-label": "View" },
    button("", "All agents"),
    agents.map((name) => button(name, h("span", { class: "agent" }, name))),
  );
}

/** Unfold everything, long texts and answers included; or fold it, if all is unfolded. */
function unfold(element) {
  const more = [...element.querySelectorAll("button.more")];
  for (const button of more) button.click();
  const folds = [...element.querySelectorAll("details")];
  const open = more.length > 0 || folds.some((fold) => !fold.open);
  for (const fold of folds) fold.open = open;
}
