// The pages and the keys. The address after # is the complete state, so that it can be kept and shared.

import { h, refill } from "./dom.js";
import { runsPage } from "./runs.js";
import { runPage } from "./run.js";
import { episodePage, comparePage } from "./episode.js";
import { comparisonPage } from "./comparison.js";
import { trainingPage } from "./training.js";

const pages = {
  "": runsPage,
  run: runPage,
  comparison: comparisonPage,
  training: trainingPage,
  episode: episodePage,
  compare: comparePage,
};
const main = document.getElementById("main");
let current = { keys: [] };
let leaving = new AbortController();

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [name, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const page = Object.hasOwn(pages, name) ? pages[name] : runsPage;
  current = { keys: [] };
  try {
    const shown = await page(new URLSearchParams(query ?? ""), signal);
    if (signal.aborted) return;
    current = shown;
    refill(document.getElementById("crumbs"), shown.crumbs ?? []);
    for (const crumb of document.getElementById("crumbs").children) crumb.title = crumb.textContent; // it may be cut
    document.title = [shown.title, "marl_gem"].filter(Boolean).join(" \u00b7 ");
    refill(main, shown.content);
    main.dataset.page = name;
    shown.ready?.();
  } catch (error) {
    if (!signal.aborted) fail(error);
  }
}

function fail(error) {
  refill(
    main,
    h(
      "div",
      { class: "empty" },
      h("h1", {}, "This cannot be shown"),
      h("p", {}, error.message),
      h("p", {}, h("a", { href: "#/" }, "All runs")),
    ),
  );
}

addEventListener("hashchange", show);
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault(); // a page that was left stops its requests
  else fail(event.reason);
});

// Keys: a page has a list of [keys, description, function]

const everywhere = [
  ["?", "show the keys", toggleKeys],
  ["t", "light, dark, or the system's theme", nextTheme],
];

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches?.("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.getElementById("keys").open) {
    if (event.key === "?") toggleKeys();
    return;
  }
  const found = [...current.keys, ...everywhere].find(([keys]) => keys.split(" ").includes(event.key));
  if (!found || (event.key === "Enter" && event.target.matches?.("button, summary, a"))) return;
  event.preventDefault();
  found[2](event);
});

const SIGNS = { ArrowDown: "\u2193", ArrowUp: "\u2191", Escape: "Esc" };

function toggleKeys() {
  const dialog = document.getElementById("keys");
  if (dialog.open) return dialog.close();
  const rows = [...current.keys, ...everywhere].map(([keys, what]) =>
    h(
      "div",
      {},
      h(
        "dt",
        {},
        keys.split(" ").map((key) => h("kbd", {}, SIGNS[key] ?? key)),
      ),
      h("dd", {}, what),
    ),
  );
  refill(dialog, h("h2", {}, "Keys"), h("dl", {}, rows), h("button", { onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

document.getElementById("help").addEventListener("click", toggleKeys);

// Light and dark

const themes = { "": "Auto", light: "Light", dark: "Dark" };

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = themes[theme];
  try {
    localStorage.setItem("theme", theme);
  } catch {} // no storage is allowed: the choice lasts for this page
}

function nextTheme() {
  const names = Object.keys(themes);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
}

function storedTheme() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return "";
  }
}

document.getElementById("theme").addEventListener("click", nextTheme);
setTheme(Object.hasOwn(themes, storedTheme()) ? storedTheme() : "");
show();
