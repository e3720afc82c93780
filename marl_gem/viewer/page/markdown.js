// A small part of markdown as elements: headings, lists, tables, code, quotes, emphasis, links, pictures.
//
// Models wrote the text. Every element is made by `h`, so that no markup of theirs is ever parsed; links lead to http and
// https alone, and pictures are data: URLs. What is not known here stays as it is written.

import { h } from "./dom.js";

const MOST = 200_000; // characters; longer texts are shown as they are
const LINE = 4000; // characters of a line that is looked at for a table or emphasis
export const PICTURE = /^data:image\/(png|jpeg|gif|webp|avif|bmp);base64,[A-Za-z0-9+/=\s]*$/;

const SIGNS =
  /^#{1,6} \S|^\s{0,3}```|\*\*[^*\n]{1,500}\*\*|`[^`\n]{1,300}`|^\s{0,8}[-*+] \S|^\s{0,8}\d{1,3}[.)] \S|\]\((https?|data):|^> /m;
const INLINE =
  /(`{1,3})([^`\n]{1,300})\1|\*\*(?=\S)([^*\n]{1,500})\*\*|(?<![\w*])\*(?=\S)([^*\n]{1,300})(?<=\S)\*(?![\w*])|~~([^~\n]{1,300})~~|!\[([^\]\n]{0,300})\]\(|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s()]{1,1000})\)|(https?:\/\/[^\s<>"'()[\]]{1,1000})/g;
const ITEM = /^(\s{0,24})([-*+]|\d{1,9}[.)])\s+(.*)$/s;
const DELIMITER = /^[\s|:-]{3,}$/;

/** Whether a text has markdown in it. */
export const hasMarkdown = (text) => text.length <= MOST && (SIGNS.test(text) || findTable(text.split("\n")) >= 0);

/** Whether a text has a code fence or a table, so that it is no board though it has columns. */
export const hasBlocks = (text) => text.length <= MOST && (/^\s{0,3}```/m.test(text) || findTable(text.split("\n")) >= 0);

const findTable = (lines) => lines.findIndex((_, index) => isTable(lines, index));

const isTable = (lines, index) =>
  index + 1 < lines.length &&
  lines[index].length < LINE &&
  lines[index].includes("|") &&
  lines[index + 1].length < LINE &&
  lines[index + 1].includes("--") &&
  DELIMITER.test(lines[index + 1]) &&
  cells(lines[index]).length === cells(lines[index + 1]).length &&
  cells(lines[index + 1]).every((cell) => /^:?-{2,}:?$/.test(cell));

const cells = (line) =>
  line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());

/** The elements of a text. */
export function markdown(text) {
  const lines = text.split("\n");
  const blocks = [];
  let paragraph = [];

  function flush() {
    while (paragraph.length && !paragraph.at(-1).trim()) paragraph.pop();
    if (paragraph.length) blocks.push(h("p", { dir: "auto" }, inline(paragraph.join("\n"))));
    paragraph = [];
  }

  for (let index = 0; index < lines.length; index++) {
    const line = lines[index];
    const found = blockAt(lines, index);
    if (found) {
      flush();
      blocks.push(found.element);
      index = found.last;
    } else if (line.trim()) paragraph.push(line);
    else flush();
  }
  flush();
  return blocks;
}

/** The block that begins at a line, and its last line; nothing for a line of a paragraph. */
function blockAt(lines, index) {
  const line = lines[index];
  const fence = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1];
  if (fence) {
    let last = index + 1;
    while (last < lines.length && !lines[last].trim().startsWith(fence)) last++;
    const code = lines.slice(index + 1, last).join("\n");
    return { element: h("pre", { class: "code", tabindex: 0 }, h("code", {}, code)), last };
  }
  const heading = /^(#{1,6}) (.+)$/.exec(line);
  if (heading)
    return { element: h("p", { class: `heading level-${heading[1].length}`, dir: "auto" }, inline(heading[2])), last: index };
  if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line.slice(0, 100))) return { element: h("hr"), last: index };
  if (isTable(lines, index)) return table(lines, index);
  if (line.startsWith(">")) {
    let last = index;
    while (lines[last + 1]?.startsWith(">")) last++;
    const quoted = lines.slice(index, last + 1).map((each) => each.replace(/^>+ ?/, ""));
    return { element: h("blockquote", { dir: "auto" }, inline(quoted.join("\n"))), last };
  }
  const item = line.length < LINE && ITEM.exec(line);
  if (!item) return null;
  const level = Math.min(6, Math.floor(item[1].length / 2));
  const marker = /\d/.test(item[2]) ? item[2] : "\u2022";
  return {
    element: h("div", { class: `item level-${level}`, dir: "auto" }, h("span", {}, marker), h("span", { dir: "auto" }, inline(item[3]))),
    last: index,
  };
}

function table(lines, index) {
  const head = cells(lines[index]);
  const rows = [];
  let last = index + 1;
  while (lines[last + 1]?.includes("|") && lines[last + 1].length < LINE) rows.push(cells(lines[++last]));
  const element = h(
    "div",
    { class: "scroll", tabindex: 0 },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, head.map((cell) => h("th", { dir: "auto" }, inline(cell))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { dir: "auto" }, inline(cell)))))),
    ),
  );
  return { element, last };
}

/** Emphasis, code, links and pictures within a paragraph. */
function inline(text, depth = 0) {
  if (depth > 3) return [text];
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index < end) continue; // inside a picture's address
    const made = element(found, text, depth);
    if (!made) continue;
    nodes.push(text.slice(end, found.index), made.node);
    end = found.index + made.length;
  }
  nodes.push(text.slice(end));
  return nodes.filter((node) => node !== "");
}

function element(found, text, depth) {
  const [all, , code, bold, italic, deleted, alt, words, href, address] = found;
  const length = all.length;
  if (code != null) return { node: h("code", {}, code), length };
  if (bold != null) return { node: h("b", {}, inline(bold, depth + 1)), length };
  if (italic != null) return { node: h("i", {}, inline(italic, depth + 1)), length };
  if (deleted != null) return { node: h("s", {}, inline(deleted, depth + 1)), length };
  if (words != null) return { node: outside(href, words), length };
  if (address != null) return { node: outside(address, address), length };
  const start = found.index + length;
  const close = text.indexOf(")", start);
  const url = text.slice(start, close);
  if (close < 0 || !PICTURE.test(url)) return null;
  return { node: h("img", { class: "picture", src: url, alt: alt || "picture", loading: "lazy" }), length: length + url.length + 1 };
}

const outside = (href, text) =>
  h("a", { href, title: href, rel: "noopener noreferrer nofollow", target: "_blank" }, text);
