// The tokens of a response, on demand.

import { ask } from "./api.js";
import { h, refill } from "./dom.js";
import { count } from "./format.js";

const SHOWN = 4000;

/** Show a turn's tokens in an element, or hide them again. */
export async function showTokens(episode, turn, element, signal) {
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
