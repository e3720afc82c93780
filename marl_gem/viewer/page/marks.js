// Small elements that several pages share: agents' colours, outcomes, bars, badges.

import { h } from "./dom.js";
import { percent, signed } from "./format.js";

const COLOURS = 8;

/** The class that colours an agent, by its index among the agents: the same on all pages. */
export const colour = (agents, agent) => `c${Math.max(0, agents.indexOf(agent)) % COLOURS}`;

const SIGNS = { win: "\u25b2", draw: "\u25a0", loss: "\u25bc", success: "\u2713", failure: "\u2717" };

/** A return, with a sign for the outcome, so that it can be seen by its shape as well as by its colour. */
export function result(value, outcome) {
  return h(
    "span",
    { class: `outcome ${outcome?.label ?? ""}`, title: outcome && [outcome.label, outcome.reason].filter(Boolean).join(": ") },
    outcome && h("i", { "aria-hidden": "true" }, SIGNS[outcome.label]),
    signed(value),
  );
}

/** The shares of an agent's outcomes, as a bar: contests won, drawn and lost, or tasks solved and not solved. */
export function bar(agent) {
  const counts = [
    ["win", agent.wins],
    ["success", agent.successes - agent.wins],
    ["draw", agent.draws],
    ["loss", agent.losses],
    ["failure", agent.episodes - agent.contests - (agent.successes - agent.wins)],
  ].filter(([, count]) => count > 0);
  const parts = counts.map(([label, count]) => {
    const part = h("i", { class: label });
    part.style.setProperty("flex-grow", count);
    return part;
  });
  const description = counts.map(([label, count]) => `${label} ${percent(count, agent.episodes)}`).join(", ");
  return h("span", { class: "bar", role: "img", "aria-label": description, title: description }, parts);
}

/** "won" for an agent that took part in contests, "solved" for one with tasks alone. */
export const successWord = (agent) => (agent.contests ? "won" : "solved");

export const badge = (kind, text, title) => h("span", { class: `badge ${kind}`, title }, text);

const STATUS = { running: "good", finished: "", interrupted: "warn", failed: "error", empty: "warn" };

/** Whether a run goes on, is complete, or why not. */
export const statusBadge = (status) => badge(STATUS[status] ?? "", status);
