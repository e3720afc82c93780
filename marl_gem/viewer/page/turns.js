// The turns of an episode: its roles, one card a turn, rounds of turns that were taken together, and the ends.

import { copy, turnText } from "./copy.js";
import { h } from "./dom.js";
import { signed } from "./format.js";
import { badge, colour, result } from "./marks.js";
import { content, fold, preview } from "./parts.js";
import { showTokens } from "./tokens.js";

export const FEW = 8; // more agents than this are folded by their groups

/** The agents by their groups: teams or roles, as the server names them. */
export function groupsOf(episode, agents) {
  const groups = new Map();
  for (const agent of agents) {
    const name = episode.groups?.[agent] ?? agent;
    groups.set(name, [...(groups.get(name) ?? []), agent]);
  }
  return groups;
}

/** Elements of agents, as items of a list; those of many agents are folded by group, with a summary of its members. */
export function grouped(episode, agents, element, summary = outcomesOf) {
  if (agents.length <= FEW) return agents.map(element);
  return [...groupsOf(episode, agents)].map(([name, members]) => {
    const about = [
      h("b", {}, name),
      h("span", { class: "muted" }, `\u00d7 ${members.length}`),
      h("span", { class: "muted small" }, summary(members, episode)),
    ];
    return h("li", {}, h("details", { class: "group" }, h("summary", {}, about), h("ul", {}, members.map(element))));
  });
}

function outcomesOf(members, episode) {
  const counts = new Map();
  for (const agent of members) {
    const label = episode.outcomes[agent]?.label;
    if (label) counts.set(label, (counts.get(label) ?? 0) + 1);
  }
  return [...counts].map(([label, number]) => `${number} ${label}`).join(", ");
}

/** Cards for the turns from one index to another: a list of elements, and of [number, card]. */
export function turnCards(turns, context) {
  const elements = [];
  const cards = [];
  for (let index = 0; index < turns.length; index++) {
    const { step } = turns[index];
    let end = index + 1;
    while (step && turns[end]?.step === step) end++;
    const together = turns.slice(index, end);
    const made = together.map((turn) => turnCard(turn, context));
    cards.push(...together.map((turn, number) => [turn.number, made[number]]));
    elements.push(together.length > 1 ? round(together, made, context) : made[0]);
    index = end - 1;
  }
  return { elements, cards };
}

/** So many first turns, without dividing those that were taken together. */
export function roundEnd(turns, most) {
  let end = Math.min(most, turns.length);
  while (end < turns.length && turns[end].step && turns[end].step === turns[end - 1].step) end++;
  return end;
}

function round(turns, cards, { episode, agents }) {
  const indexOf = new Map(turns.map((turn, index) => [turn.agent, index]));
  const acting = agents.filter((agent) => indexOf.has(agent));
  const summary = (members) => roundSummary(members.map((agent) => turns[indexOf.get(agent)]));
  const items = grouped(episode, acting, (agent) => cards[indexOf.get(agent)], summary);
  return h(
    "li",
    { class: "round" },
    h("p", { class: "muted small" }, `step ${turns[0].step}: ${turns.length} agents at the same time`),
    h("ul", { class: acting.length > FEW ? "" : "lanes" }, items),
  );
}

function roundSummary(turns) {
  const reward = turns.reduce((sum, turn) => sum + turn.reward, 0);
  const illegal = turns.filter((turn) => turn.illegal).length;
  return [
    illegal > 0 && [badge("warn", `${illegal} illegal`), " "],
    reward !== 0 && `rewards ${signed(Number(reward.toPrecision(3)))}`,
  ];
}

function turnCard(turn, context) {
  const { episode, agents, agent, difference, select, signal, address } = context;
  const tokens = h("div", { class: "tokens", hidden: true });
  const answers = context.answers.get(turn.number) ?? [];
  const link = (number, text = `turn ${number}`) => turnLink(number, text, context);
  return h(
    "li",
    {
      class: `turn ${colour(agents, turn.agent)}`,
      "data-number": turn.number,
      onclick: () => select(turn.number, false),
    },
    turn.number === difference && h("p", { class: "difference" }, "the first difference"),
    h(
      "header",
      {},
      h("a", { class: "muted turn-number", href: address?.(turn.number), title: "Link to this turn" }, turn.number),
      h("span", { class: "agent" }, turn.agent),
      h("span", { class: "muted models" }, episode.models[turn.agent]),
      h("span", { class: "spring" }),
      turn.notes.length > 0 && h("span", { class: "muted small notes" }, turn.notes.join(" \u00b7 ")),
      turn.tokens > 0 &&
        h("button", { class: "quiet small", onclick: () => showTokens(episode, turn, tokens, signal) }, "tokens"),
      h("button", { class: "quiet small", onclick: (event) => copy(turnText(turn), event.target) }, "copy"),
      turn.reward !== 0 &&
        h(
          "b",
          { class: `reward ${turn.reward > 0 ? "positive" : "negative"}`, title: `Reward; ${signed(turn.total)} so far` },
          signed(turn.reward),
        ),
    ),
    turn.illegal &&
      h("p", { class: "illegal" }, badge("warn", "illegal"), " ", turn.illegal === "illegal" ? "" : turn.illegal),
    h(
      "section",
      { class: "observation", "aria-label": "Observation" },
      content(turn.observation, { brief: !agent, link }),
    ),
    h("section", { class: "response", "aria-label": "Response" }, content(turn.response, { answers })),
    !agent && heardBy(turn, context),
    tokens,
    turn.info && h("details", { class: "info small" }, h("summary", {}, "info"), h("pre", {}, turn.info)),
  );
}

/** A link to a turn on this page. */
function turnLink(number, text, { episode, agents, address, select }) {
  const author = episode.turns[number - 1]?.agent;
  return h(
    "a",
    {
      class: `ref ${author && text === author ? colour(agents, author) : ""}`,
      href: address?.(number),
      title: `turn ${number}`,
      onclick: (event) => {
        event.preventDefault();
        event.stopPropagation();
        select(number);
      },
    },
    text === author ? [h("span", { class: "agent" }, author), ` ${number}`] : text,
  );
}

/** Who heard a message: everybody else, or these. */
function heardBy(turn, { agents }) {
  if (!turn.heard.length) return null;
  const names = turn.heard.map((agent) => h("span", { class: `agent ${colour(agents, agent)}` }, agent));
  const all = turn.heard.length === agents.length - 1 && agents.length > 2;
  if (turn.heard.length <= 4 && !all) return h("p", { class: "heardby muted small" }, "heard by ", separated(names));
  const summary = all ? `heard by all ${turn.heard.length} others` : `heard by ${turn.heard.length} of ${agents.length - 1} others`;
  return h("details", { class: "heardby muted small" }, h("summary", {}, summary), h("p", {}, separated(names)));
}

const separated = (elements) => elements.flatMap((element, index) => (index ? [", ", element] : [element]));

/** The agents' roles, folded, because they may be pages long. Agents with the same role share a card. */
export function roleCards(episode, agents, agent) {
  const same = new Map();
  for (const role of episode.roles.filter((role) => !agent || role.agent === agent)) {
    const key = JSON.stringify(role.parts);
    same.set(key, [...(same.get(key) ?? []), role]);
  }
  return [...same.values()].map((roles) =>
    h(
      "li",
      { class: `role ${roles.length > 1 ? "" : colour(agents, roles[0].agent)}` },
      fold(
        "role",
        [
          h("span", { class: "agent" }, roles.length > FEW ? `${roles.length} agents` : roles.map((role) => role.agent).join(", ")),
          h("span", { class: "muted" }, "role"),
          preview(roles[0].parts.map((part) => part.name || part.text).join(", ")),
        ],
        roles.length > FEW && h("p", { class: "muted small label" }, roles.map((role) => role.agent).join(", ")),
        content(roles[0].parts),
      ),
    ),
  );
}

/** What each agent observed at its end. */
export function endCards(context) {
  const { episode, agents, agent } = context;
  const link = (number, text = `turn ${number}`) => turnLink(number, text, context);
  const byAgent = new Map(episode.ends.filter((end) => !agent || end.agent === agent).map((end) => [end.agent, end]));
  const card = (name) => {
    const end = byAgent.get(name);
    return h(
      "li",
      { class: `final ${colour(agents, name)}` },
      h(
        "header",
        {},
        h("span", { class: "agent" }, name),
        h("span", { class: "muted" }, "at the end"),
        h("span", { class: "spring" }),
        result(episode.returns[name] ?? 0, episode.outcomes[name]),
      ),
      end.observation.some((part) => part.text) && h("section", { class: "observation" }, content(end.observation, { brief: !agent, link })),
      end.info && h("details", { class: "info small" }, h("summary", {}, "info"), h("pre", {}, end.info)),
    );
  };
  const names = [...byAgent.keys()];
  return grouped(episode, names, card, (members) => `at the end: ${outcomesOf(members, episode)}`);
}

/** The results that answer the calls of each turn, by its number, in the order of the calls. */
export function answersOf(episode) {
  const answers = new Map();
  for (const { observation } of [...episode.turns, ...episode.ends])
    for (const part of observation)
      if (part.kind === "result" && part.turn) answers.set(part.turn, [...(answers.get(part.turn) ?? []), part]);
  return answers;
}
