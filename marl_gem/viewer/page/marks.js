// Small signs that several pages share: colours of seats, outcomes, bars.

import { h } from "./dom.js";
import { percent, signed } from "./format.js";

const COLOURS = 8;

/** The class that colours an agent: by its place among the agents, the same on all pages. */
export const colour = (agents, agent) => `c${Math.max(0, agents.indexOf(agent)) % COLOURS}`;

const SIGNS = { won: "\u25b2", drew: "\u25a0", lost: "\u25bc" };

/** A return, with a sign for how the agent fared: told by shape as well as by colour. */
export function result(value, outcome) {
  return h(
    "span",
    { class: `fared ${outcome ?? ""}`, title: outcome },
    outcome && h("i", { "aria-hidden": "true" }, SIGNS[outcome]),
    signed(value),
  );
}

/** Shares of games won, drawn and lost, as a bar. */
export function bar(seat) {
  const whole = seat.won + seat.drew + seat.lost;
  const parts = ["won", "drew", "lost"].map((outcome) => {
    const part = h("i", { class: outcome });
    part.style.setProperty("flex-grow", seat[outcome]);
    return part;
  });
  const told = ["won", "drew", "lost"].map((outcome) => `${outcome} ${percent(seat[outcome], whole)}`).join(", ");
  return h("span", { class: "bar", role: "img", "aria-label": told, title: told }, whole ? parts : null);
}

export const badge = (kind, text, title) => h("span", { class: `badge ${kind}`, title }, text);
