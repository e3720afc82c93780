// An episode as plain text or as a file, to be taken elsewhere.

import { ask } from "./api.js";
import { signed } from "./format.js";

/** One turn as text: what was observed is quoted. */
export function turnText(turn) {
  const lines = [`${turn.number} ${turn.agent}${turn.reward ? `  ${signed(turn.reward)}` : ""}`];
  if (turn.illegal) lines.push(`illegal: ${turn.illegal}`);
  const seen = turn.observation.map(partText).join("\n");
  if (seen) lines.push(seen.replace(/^/gm, "> "));
  lines.push(turn.response.map(partText).join("\n"));
  return lines.join("\n");
}

/** All turns of an episode, or those of one agent, as text. */
export function episodeText(episode, agent) {
  const turns = episode.turns.filter((turn) => !agent || turn.agent === agent);
  const head = [`Episode ${episode.id}, ${episode.scenario}, seed ${episode.seed}, ${episode.ending}`];
  head.push(...episode.reasons.map((reason) => [reason.text, ...(reason.checks ?? [])].join("; ")));
  head.push(...Object.entries(episode.returns).map(([name, value]) => `${name}: ${signed(value)}`));
  return [head.join("\n"), ...turns.map(turnText)].join("\n\n");
}

function partText(part) {
  if (part.kind === "call") return `-> ${part.name} ${part.text}`;
  if (part.kind === "broken call") return `-> a broken call, ${part.name}: ${part.text}`;
  if (part.kind === "result") return `<- ${part.name || "tool"} ${part.text}`;
  if (part.kind === "reasoning") return `(thought) ${part.text}`;
  return (part.label ?? "") + part.text;
}

/** Put a text on the clipboard; the button says whether that worked. */
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser refuses";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

/** Save the record of an episode as a JSON file. */
export async function download(episode) {
  const { record } = await ask("record", { run: episode.run, key: episode.key });
  const url = URL.createObjectURL(new Blob([record], { type: "application/json" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = `${`${episode.run}-${episode.id ?? episode.key}`.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 100)}.json`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
