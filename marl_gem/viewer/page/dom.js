// Elements and text. Text from a run reaches the page through `h` and `visible` alone, never as markup.

/** An element: `h("a", {class: "x", onclick: go}, "text", child)`. Children that are null or false are left out. */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for pictures. */
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value != null) element.setAttribute(name, typeof value === "string" ? visible(value) : value);
  }
  element.append(
    ...children
      .flat(3)
      .filter((child) => child != null && child !== false)
      .map(node),
  );
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(visible(String(child)));
}

/** The same text; control and invisible characters become symbols or code points, lone surrogates are replaced. */
export function visible(text) {
  const shown = text
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(
      /[\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu,
      (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`,
    );
  return shown.toWellFormed?.() ?? shown;
}

/** Replace all children of an element. */
export function refill(element, ...children) {
  element.replaceChildren(
    ...children
      .flat(3)
      .filter((child) => child != null && child !== false)
      .map(node),
  );
  return element;
}
