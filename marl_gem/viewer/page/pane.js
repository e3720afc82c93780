// One episode: its facts, its rewards and its turns.

import { ask } from "./api.js";
import { rewardChart } from "./chart.js";
import { h, refill } from "./dom.js";
import { brief, bytes, count, duration, money, signed } from "./format.js";
import { badge, colour, result } from "./marks.js";
import { content, fold, preview } from "./parts.js";
import { ending } from "./table.js";

const AT_ONCE = 100; // so many turns are drawn before the page is shown; the others follow

/**
 * A pane with an episode, in the form of the server's answer.
 *
 * `agent` is the agent whose view is shown, "" for all agents. `choose(agent)` is called when another view is chosen and
 * `selected(number)` when a turn is selected. `difference` is the first turn that differs from the episode beside it.
 */
export function episodePane(episode, { agent = "", choose, selected: onSelected, difference, signal }) {
  if (episode.broken) return brokenPane(episode);
  const agents = agentsOf(episode);
  const turns = agent ? episode.turns.filter((turn) => turn.agent === agent) : episode.turns;
  const cards = new Map();
  const list = h("ol", { class: agent ? "turns single-agent" : "turns" });
  const chart = rewardChart(agents, episode.turns, (number) => select(number));
  let selected = 0;

  function add(start, end) {
    for (const turn of turns.slice(start, end)) {
      const card = turnCard(episode, turn, agents, { brief: !agent, differs: turn.number === difference, select, signal });
      cards.set(turn.number, card);
      list.append(card);
    }
  }

  function addAll() {
    add(cards.size, turns.length);
    if (!list.querySelector(".final")) list.append(...endCards(episode, agents, agent));
  }

  function select(number, scroll = true) {
    if (!cards.has(number)) addAll();
    cards.get(selected)?.classList.remove("selected");
    const card = cards.get(number) ?? cards.get(turns.find((turn) => turn.number >= number)?.number);
    if (!card) return;
    selected = Number(card.dataset.number);
    card.classList.add("selected");
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
  add(0, AT_ONCE);
  if (turns.length > AT_ONCE) setTimeout(addAll);
  else addAll();
  return {
    element: h(
      "article",
      { class: "pane" },
      h("div", { class: "facts" }, facts(episode, agents), views(agents, agent, choose), chart.element),
      list,
    ),
    select,
    move,
    selected: () => selected,
    unfold: () => unfold(list),
  };
}

/** All agents of an episode, also those without a return because an error ended the episode early. */
export const agentsOf = (episode) => [
  ...new Set([
    ...Object.keys({ ...episode.returns, ...episode.models }),
    ...(episode.turns ?? []).map((turn) => turn.agent),
  ]),
];

function brokenPane(episode) {
  const element = h(
    "article",
    { class: "pane" },
    h(
      "div",
      { class: "facts" },
      h("h1", {}, `Line ${episode.key}`),
      badge("error", "no episode"),
      h("p", { class: "negative" }, episode.broken),
      h("p", { class: "muted" }, `${episode.file}, ${bytes(episode.size)}`),
    ),
    h("pre", { class: "raw" }, episode.raw),
  );
  const nothing = () => {};
  return { element, select: nothing, move: nothing, selected: () => 0, unfold: nothing };
}

function facts(episode, agents) {
  const seats = agents.map((agent) =>
    h(
      "li",
      { class: colour(agents, agent) },
      h("span", { class: "agent" }, agent),
      h("span", { class: "muted models", title: episode.models[agent] }, episode.models[agent]),
      agent in episode.returns && result(episode.returns[agent], episode.outcomes[agent]),
    ),
  );
  const small = [
    ["seed", episode.seed + (episode.repeat ? `, repeat ${episode.repeat}` : "")],
    ["turns", count(episode.turns.length)],
    ["tokens", brief(episode.tokens)],
    ["cost", episode.cost == null ? "unknown" : money(episode.cost)],
    ["time", duration(episode.seconds)],
  ];
  return [
    h("h1", {}, "Episode ", episode.id),
    h(
      "p",
      { class: "muted small" },
      episode.scenario,
      " \u00b7 ",
      episode.file,
      ", line ",
      episode.key.replace("e", ""),
    ),
    h("p", { class: "badges" }, badge(episode.ending === "error" ? "error" : "plain", episode.ending), ending(episode)),
    episode.error && errorBox(episode.error),
    h("ul", { class: "seatlist" }, seats),
    h(
      "dl",
      { class: "small" },
      small.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
    episode.options &&
      h("details", { class: "small" }, h("summary", {}, "options of the scenario"), h("pre", {}, episode.options)),
  ];
}

const errorBox = (error) =>
  h(
    "div",
    { class: "errorbox" },
    h("b", {}, `${error.type} in ${error.origin}${error.agent ? `, of ${error.agent}` : ""}`),
    h("pre", {}, error.message),
  );

function views(agents, agent, choose) {
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

/** The agents' roles, folded, because they may be pages long. */
function roleCards(episode, agents, agent) {
  return episode.roles
    .filter((role) => !agent || role.agent === agent)
    .map((role) =>
      h(
        "li",
        { class: `role ${colour(agents, role.agent)}` },
        fold(
          "role",
          [
            h("span", { class: "agent" }, role.agent),
            h("span", { class: "muted" }, "role"),
            preview(role.parts.map((part) => part.name || part.text).join(", ")),
          ],
          content(role.parts, { brief: false }),
        ),
      ),
    );
}

function turnCard(episode, turn, agents, { brief: short, differs, select, signal }) {
  const tokens = h("div", { class: "tokens", hidden: true });
  return h(
    "li",
    {
      class: `turn ${colour(agents, turn.agent)}`,
      "data-number": turn.number,
      onclick: () => select(turn.number, false),
    },
    differs && h("p", { class: "difference" }, "the first difference"),
    h(
      "header",
      {},
      h("span", { class: "muted turn-number" }, turn.number),
      h("span", { class: "agent" }, turn.agent),
      h("span", { class: "muted models" }, episode.models[turn.agent]),
      h("span", { class: "spring" }),
      turn.notes.length > 0 && h("span", { class: "muted small notes" }, turn.notes.join(" \u00b7 ")),
      turn.tokens > 0 &&
        h("button", { class: "quiet small", onclick: () => showTokens(episode, turn, tokens, signal) }, "tokens"),
      turn.reward !== 0 &&
        h(
          "b",
          { class: `reward ${turn.reward > 0 ? "positive" : "negative"}`, title: `Reward; ${signed(turn.total)} so far` },
          signed(turn.reward),
        ),
    ),
    turn.illegal &&
      h("p", { class: "illegal" }, badge("warn", "illegal"), " ", turn.illegal === "illegal" ? "" : turn.illegal),
    h("section", { class: "observation", "aria-label": "Observation" }, content(turn.observation, { brief: short })),
    h("section", { class: "response", "aria-label": "Response" }, content(turn.response, {})),
    tokens,
    turn.info && h("details", { class: "info small" }, h("summary", {}, "info"), h("pre", {}, turn.info)),
  );
}

function endCards(episode, agents, agent) {
  const cards = episode.ends
    .filter((end) => !agent || end.agent === agent)
    .map((end) =>
      h(
        "li",
        { class: `final ${colour(agents, end.agent)}` },
        h(
          "header",
          {},
          h("span", { class: "agent" }, end.agent),
          h("span", { class: "muted" }, "at the end"),
          h("span", { class: "spring" }),
          result(episode.returns[end.agent] ?? 0, episode.outcomes[end.agent]),
        ),
        h("section", { class: "observation" }, content(end.observation, { brief: !agent })),
        end.info && h("details", { class: "info small" }, h("summary", {}, "info"), h("pre", {}, end.info)),
      ),
    );
  return episode.error ? [...cards, h("li", { class: "final" }, errorBox(episode.error))] : cards;
}

/** Unfold everything; or fold everything, if all is unfolded. */
function unfold(list) {
  for (const button of list.querySelectorAll("button.more")) button.click();
  const folds = [...list.querySelectorAll("details:not(.info)")];
  const open = folds.some((fold) => !fold.open);
  for (const fold of folds) fold.open = open;
}

// Tokens, on demand

const SHOWN = 4000;

async function showTokens(episode, turn, element, signal) {
  element.hidden = !element.hidden;
  if (element.hidden || element.childNodes.length) return;
  const { ids, logprobs, prompt } = await ask(
    "tokens",
    { run: episode.run, key: episode.key, turn: turn.number },
    signal,
  );
  refill(
    element,
    h(
      "p",
      { class: "muted small" },
      `${count(ids.length)} sampled tokens after a prompt of ${count(prompt.length)}.`,
      logprobs.length > 0 && " The redder a token, the lower its probability.",
    ),
    h(
      "div",
      { class: "chips" },
      ids.slice(0, SHOWN).map((id, number) => token(id, logprobs[number])),
    ),
    ids.length > SHOWN && h("p", { class: "muted" }, `and ${count(ids.length - SHOWN)} more`),
    prompt.length > 0 &&
      h(
        "details",
        {},
        h("summary", {}, "the prompt's tokens"),
        h("p", { class: "ids" }, prompt.slice(0, SHOWN).join(" "), prompt.length > SHOWN && " \u2026"),
      ),
  );
}

function token(id, logprob) {
  const known = typeof logprob === "number";
  const probability = known ? Math.exp(logprob) : 1;
  const chip = h(
    "span",
    {
      class: "token",
      title: known
        ? `token ${id}: probability ${probability.toPrecision(3)}, logprob ${logprob.toPrecision(4)}`
        : `token ${id}`,
    },
    id,
  );
  chip.style.setProperty("--doubt", `${Math.round(70 * (1 - probability))}%`);
  return chip;
}
