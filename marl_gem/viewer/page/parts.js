// The parts of a role, an observation or a response. Others wrote them: they are put on the page as text.

import { h, refill } from "./dom.js";
import { bytes, count } from "./format.js";
import { hasBlocks, hasMarkdown, markdown, PICTURE } from "./markdown.js";

const SHORT = { lines: 14, characters: 700 }; // of observations in the view of all agents
const LONG = { lines: 400, characters: 20_000 }; // of any text
const PREVIEW = 90;

/** Whether markdown is rendered; the choice is kept. */
export const rendering = {
  get on() {
    try {
      return localStorage.getItem("markdown") !== "off";
    } catch {
      return true;
    }
  },
  toggle() {
    try {
      localStorage.setItem("markdown", this.on ? "off" : "on");
    } catch {} // no storage is allowed: markdown stays rendered
  },
};

/**
 * Elements for parts.
 *
 * With `brief`, long texts are shortened, and what stands elsewhere on the page is folded: `link(turn, text)` leads there.
 * `answers` are the results of the calls among the parts, in order.
 */
export function content(parts, { brief = false, answers = [], link } = {}) {
  const rest = [...answers];
  const shown = [];
  for (let index = 0; index < parts.length; index++) {
    const part = parts[index];
    if (part.turn && link) {
      let last = index; // of those that belong together
      while (parts[last + 1]?.turn && kindOf(parts[last + 1]) === kindOf(part)) last++;
      shown.push(REPEATED[kindOf(part)](parts.slice(index, last + 1), { brief, link }));
      index = last;
    } else if (part.kind === "call" || part.kind === "broken call") shown.push(call(part, rest.shift()));
    else shown.push(show[part.kind](part, brief ? SHORT : LONG));
  }
  return shown;
}

const kindOf = (part) => (part.kind === "result" ? "answer" : part.name ? "message" : "again");

const REPEATED = {
  answer: (parts, { link }) =>
    h("p", { class: "muted small" }, parts.length > 1 ? "the answers to the calls of " : "the answer to the call of ", link(parts[0].turn)),
  message: (parts, { brief, link }) =>
    brief
      ? fold(
          "heard",
          [h("span", { class: "muted" }, "heard"), h("span", { class: "refs" }, parts.slice(0, 12).map((part) => link(part.turn, part.name)), parts.length > 12 && h("span", { class: "muted" }, `and ${parts.length - 12} more`))],
          parts.map((part) => text(part.label + part.text, LONG)),
        )
      : parts.map((part) => h("div", { class: "message" }, h("p", { class: "small" }, link(part.turn, part.name)), text(part.label + part.text, LONG))),
  again: (parts, { brief, link }) =>
    brief
      ? parts.map((part) => fold("again", [h("span", { class: "muted" }, "as in"), link(part.turn), preview(part.text)], text(part.text, LONG)))
      : parts.map((part) => text(part.text, LONG)),
};

const show = {
  text: (part, most) => text((part.label ?? "") + part.text, most),
  reasoning: (part) => fold("reasoning", [h("i", {}, "reasoning"), preview(part.text)], text(part.text, LONG)),
  result: (part) =>
    fold("result", [h("code", {}, part.name || "tool"), preview(part.text)], text(laidOut(part.text), LONG, "mono")),
  tool: (part) => fold("tool", [h("code", {}, part.name), preview(part.text)], text(part.text, LONG, "mono")),
  image: picture,
  other: (part) => fold("other", [h("code", {}, part.name || "part")], text(part.text, LONG, "mono")),
};

/** A call with its arguments, and the answer it got. */
function call(part, answer) {
  const broken = part.kind === "broken call";
  const shown = fold(
    broken ? "call broken" : "call",
    [
      h("code", {}, broken ? "a broken call" : part.name),
      preview(broken ? part.name : part.text.replace(/\s+/g, " ")),
    ],
    [broken ? text(part.text, LONG, "mono") : callArguments(part.text)],
  );
  if (!answer) return shown;
  shown.querySelector("summary").append(h("span", { class: "answer preview muted" }, h("span", { class: "sign" }, "\u2190 "), short(answer.text)));
  shown.append(h("p", { class: "muted small label" }, "answer"), ...[text(laidOut(answer.text), LONG, "mono")].flat());
  return shown;
}

const INEXACT = /(?:^|[:[,])\s*-?(?:\d{16,}|\d+\.\d*0\b|\d+\.\d{16,}|\d[\d.]*[eE])/; // numbers that JavaScript would write in another way

/** Each argument with its value: text as it is, other values as JSON. */
function callArguments(json) {
  let values;
  if (INEXACT.test(json)) return text(json, LONG, "mono");
  try {
    values = JSON.parse(json, (_, value) =>
      value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value,
    );
  } catch {
    return text(json, LONG, "mono");
  }
  if (!values || typeof values !== "object" || Array.isArray(values)) return text(json, LONG, "mono");
  const rows = Object.entries(values);
  if (!rows.length) return h("p", { class: "muted small label" }, "no arguments");
  return h(
    "dl",
    { class: "arguments" },
    rows.map(([name, value]) =>
      h(
        "div",
        {},
        h("dt", { dir: "auto" }, name),
        h("dd", {}, typeof value === "string" ? text(value, LONG) : text(JSON.stringify(value, null, 2), LONG, "mono")),
      ),
    ),
  );
}

/** JSON with its lines broken; other text as it is. */
function laidOut(answer) {
  if (!/^\s*[[{]/.test(answer) || answer.length > LONG.characters || INEXACT.test(answer)) return answer;
  try {
    return JSON.stringify(JSON.parse(answer), null, 2);
  } catch {
    return answer;
  }
}

/** A summary with content that can be unfolded. */
export function fold(kind, summary, ...inside) {
  return h("details", { class: `fold ${kind}` }, h("summary", {}, summary), inside);
}

const short = (text) => (text.length > PREVIEW ? `${text.slice(0, PREVIEW)}\u2026` : text);

export const preview = (text) => h("span", { class: "muted preview" }, short(text));

/** A text; if it has more than the most lines or characters, the rest can be unfolded. */
function text(full, most, kind = looks(full)) {
  if (!full) return h("div", { class: "text empty" }, "(empty)");
  const cutText = cut(full, most);
  const format = kind === "" && rendering.on && hasMarkdown(full) ? "markdown" : kind;
  const fill = (part) => (format === "markdown" ? markdown(part) : [part]);
  const shown = h("div", { class: `text ${format}`, dir: "auto" }, fill(cutText));
  if (cutText.length === full.length) return shown;
  shown.classList.add("folded");
  const button = h("button", { class: "more quiet small", onclick: unfold }, `show all ${count(full.length)} characters`);

  function unfold(event) {
    event.stopPropagation();
    refill(shown, fill(full));
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

/** "mono" for boards and columns, which need a monospaced font. */
const looks = (text) =>
  text.includes("\n") &&
  /\S {2,}\S|^ +\S|[|+][-=|+ ]|\t|^(\S )+\S$/m.test(text.slice(0, 4000)) &&
  !hasBlocks(text) &&
  !isList(text)
    ? "mono"
    : "";

/** Most indented lines are items of a list, and there are no columns. */
const isList = (text) => {
  const start = text.slice(0, 4000);
  return /^\s{0,8}([-*+]|\d{1,3}[.)]) \S/m.test(start) && !/\S {3,}\S|[|+][-=|+]|\t/.test(start);
};

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
