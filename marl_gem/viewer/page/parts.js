// The parts of a role, an observation or a response. Others wrote them: they are put on the page as text.

import { h, refill } from "./dom.js";
import { bytes, count } from "./format.js";

const SHORT = { lines: 8, characters: 700 }; // of observations in the view of all agents
const LONG = { lines: 400, characters: 20_000 }; // of any text
const PREVIEW = 90;
const PICTURE = /^data:image\/(png|jpeg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=\s]*$/;

/** Elements for parts; with `brief`, long texts are shortened. */
export function content(parts, { brief }) {
  return parts.map((part) => show[part.kind](part, brief ? SHORT : LONG));
}

const show = {
  text: (part, most) => text(part.text, most),
  reasoning: (part) => fold("reasoning", [h("i", {}, "reasoning"), preview(part.text)], text(part.text, LONG)),
  call: (part) =>
    fold("call", [h("code", {}, part.name), preview(part.text.replace(/\s+/g, " "))], text(part.text, LONG, "mono")),
  "broken call": (part) =>
    fold("call broken", [h("code", {}, "a broken call"), preview(part.name)], text(part.text, LONG, "mono")),
  result: (part) =>
    fold("result", [h("code", {}, part.name || "tool"), preview(part.text)], text(part.text, LONG, "mono")),
  tool: (part) => fold("tool", [h("code", {}, part.name), preview(part.text)], text(part.text, LONG, "mono")),
  image: picture,
  other: (part) => fold("other", [h("code", {}, part.name || "part")], text(part.text, LONG, "mono")),
};

/** A summary with content that can be unfolded. */
export function fold(kind, summary, inside) {
  return h("details", { class: `fold ${kind}` }, h("summary", {}, summary), inside);
}

export const preview = (text) =>
  h("span", { class: "muted preview" }, text.length > PREVIEW ? `${text.slice(0, PREVIEW)}\u2026` : text);

/** A text; if it has more than the most lines or characters, the rest can be unfolded. */
function text(full, most, kind = looks(full)) {
  const short = cut(full, most);
  if (!full) return h("div", { class: "text empty" }, "(empty)");
  if (short.length === full.length) return h("div", { class: `text ${kind}` }, full);
  const shown = h("div", { class: `text ${kind} folded` }, short);
  const button = h(
    "button",
    { class: "more quiet small", onclick: unfold },
    `show all ${count(full.length)} characters`,
  );

  function unfold(event) {
    event.stopPropagation();
    refill(shown, full);
    shown.classList.remove("folded");
    button.remove();
  }

  return [shown, button];
}

function cut(text, most) {
  let end = Math.min(text.length, most.characters);
  let line = -1;
  for (let lines = 0; lines < most.lines; lines++) {
    line = text.indexOf("\n", line + 1);
    if (line < 0 || line >= end) return end < text.length ? text.slice(0, end) : text;
  }
  return text.slice(0, line);
}

/** "mono" for boards and tables, which need a monospaced font. */
const looks = (text) =>
  text.includes("\n") && /\S {2,}\S|^ +\S|[|+][-=|+ ]|\t|^(\S )+\S$/m.test(text.slice(0, 4000)) ? "mono" : "";

function picture(part) {
  if (PICTURE.test(part.text))
    return h("img", { class: "picture", src: part.text, alt: "image of the observation", loading: "lazy" });
  const address = part.text.length > 300 ? `${part.text.slice(0, 300)}\u2026 (${bytes(part.text.length)})` : part.text;
  const safe = /^https?:\/\//.test(part.text);
  return h(
    "p",
    { class: "notloaded" },
    "a picture, not loaded: ",
    safe
      ? h("a", { href: part.text, rel: "noopener noreferrer nofollow", target: "_blank" }, address)
      : h("code", {}, address),
  );
}
