// One episode, or two side by side.

import { ask, link, queryOf } from "./api.js";
import { copy, download, episodeText } from "./copy.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { agentsOf, episodePane, title } from "./pane.js";
import { rendering } from "./parts.js";

export async function episodePage(parameters, signal) {
  const [run, key, agent] = ["run", "key", "agent"].map((name) => parameters.get(name) ?? "");
  const query = queryOf(parameters);
  const [episode, position] = await Promise.all([
    ask("episode", { run, key }, signal),
    ask("position", { run, key, ...query }, signal),
  ]);
  const here = (changes) => link("episode", { run, key: episode.key, agent, ...query, ...changes });
  const pane = episodePane(episode, {
    agent,
    signal,
    address: (turn) => here({ turn }),
    choose: (name) => (location.hash = here({ agent: name, turn: pane.selected() || "" })),
    selected: (turn) => history.replaceState(null, "", here({ turn })),
  });
  const views = ["", ...agentsOf(episode)];
  const list = link("run", { run, ...query, at: episode.key });
  const near = (which) => position[which] && here({ key: position[which] });

  async function compare() {
    const other = await ask("counterpart", { run, key: episode.key }, signal);
    if (other.key) location.hash = link("compare", { run, key: episode.key, run2: run, key2: other.key });
  }

  function toggleMarkdown() {
    rendering.toggle();
    dispatchEvent(new Event("hashchange"));
  }

  return {
    title: `${episode.id ?? episode.key} in ${run}`,
    crumbs: [h("a", { href: "#/?all=1" }, "Runs"), h("a", { href: list }, run), h("b", {}, episode.id ?? episode.key)],
    keys: [
      ["j ArrowDown", "next turn", () => pane.move(1)],
      ["k ArrowUp", "previous turn", () => pane.move(-1)],
      ["J ]", "next episode of the list", () => near("after") && (location.hash = near("after"))],
      ["K [", "previous episode of the list", () => near("before") && (location.hash = near("before"))],
      [
        "a",
        "the next view: all agents, then each agent",
        () => (location.hash = here({ agent: views[(views.indexOf(agent) + 1) % views.length] })),
      ],
      ["e", "unfold everything, or fold it", pane.unfold],
      ["m", "show markdown as it is written, or rendered", toggleMarkdown],
      ["c", "compare with another episode", compare],
      ["u Escape", "back to the list", () => (location.hash = list)],
    ],
    content: [
      h("div", { class: "episode-title" }, title(episode)),
      h(
        "div",
        { class: "tools" },
        step("\u2039 previous", near("before"), "K"),
        step("next \u203a", near("after"), "J"),
        h(
          "span",
          { class: "muted" },
          position.index == null ? "not in the list" : `${count(position.index + 1)} of ${count(position.total)}`,
        ),
        h("span", { class: "spring" }),
        h("button", { onclick: pane.unfold, title: "e" }, "Unfold all"),
        h("button", { onclick: toggleMarkdown, title: "m", "aria-pressed": String(rendering.on) }, "Markdown"),
        !episode.broken &&
          h("button", { onclick: (event) => copy(episodeText(episode, agent), event.target) }, "Copy"),
        !episode.broken && h("button", { onclick: () => download(episode) }, "Download"),
        h("button", { onclick: compare, title: "c" }, "Compare\u2026"),
      ),
      h("div", { class: "single" }, pane.element),
    ],
    ready: () => {
      const turn = Number(parameters.get("turn"));
      if (turn) pane.select(turn);
      else scrollTo(0, 0);
    },
  };
}

const step = (text, href, title) => h("a", { class: `button ${href ? "" : "off"}`, href: href || null, title }, text);

export async function comparePage(parameters, signal) {
  const agent = parameters.get("agent") ?? "";
  const sides = ["", "2"].map((side) => ({
    side,
    run: parameters.get(`run${side}`),
    key: parameters.get(`key${side}`),
  }));
  const [{ runs }, ...episodes] = await Promise.all([
    ask("runs", {}, signal),
    ...sides.map(({ run, key }) => ask("episode", { run, key }, signal)),
  ]);
  const difference = firstDifference(...episodes);
  const here = (changes) =>
    link("compare", {
      run: sides[0].run,
      key: sides[0].key,
      run2: sides[1].run,
      key2: sides[1].key,
      agent,
      ...changes,
    });
  const panes = episodes.map((episode) =>
    episodePane(episode, { agent, signal, difference, heading: true, choose: (name) => (location.hash = here({ agent: name })) }),
  );
  const views = ["", ...agentsOf(episodes[0])];
  const both = (step) => panes.forEach((pane) => pane.move(step));

  return {
    title: "two episodes",
    crumbs: [
      h("a", { href: "#/?all=1" }, "Runs"),
      h("a", { href: link("run", { run: sides[0].run }) }, sides[0].run),
      h("b", {}, "side by side"),
    ],
    keys: [
      ["j ArrowDown", "next turn, in both", () => both(1)],
      ["k ArrowUp", "previous turn, in both", () => both(-1)],
      ["d", "the first difference", () => difference && panes.forEach((pane) => pane.select(difference))],
      [
        "a",
        "the next view: all agents, then each agent",
        () => (location.hash = here({ agent: views[(views.indexOf(agent) + 1) % views.length] })),
      ],
      ["e", "unfold everything, or fold it", () => panes.forEach((pane) => pane.unfold())],
      [
        "u Escape",
        "back to the first episode",
        () => (location.hash = link("episode", { run: sides[0].run, key: sides[0].key })),
      ],
    ],
    content: h(
      "div",
      { class: "pair" },
      panes.map((pane, index) => h("div", { class: "side" }, chooser(sides, index, runs, here, signal), pane.element)),
    ),
  };
}

/** Controls for the episode of a side: its run, and the number of its line. */
function chooser(sides, index, runs, here, signal) {
  const { side, run, key } = sides[index];
  const names = runs.map(({ name }) => name);
  const go = (run, key) => (location.hash = here({ [`run${side}`]: run, [`key${side}`]: key }));
  const select = h(
    "select",
    { "aria-label": "Run", onchange: chooseRun },
    names.map((name) => h("option", { selected: name === run }, name)),
  );
  const input = h("input", {
    value: key,
    "aria-label": "Episode",
    title: "The number of a line, or an episode's id",
    onchange: () => go(run, input.value.trim()),
  });

  async function chooseRun() {
    const other = sides[1 - index];
    const found = await ask("counterpart", { run: other.run, key: other.key, other: names[select.selectedIndex] }, signal);
    if (found.key) go(names[select.selectedIndex], found.key);
  }

  async function near(which) {
    const found = await ask("position", { run, key }, signal);
    if (found[which]) go(run, found[which]);
  }

  return h(
    "div",
    { class: "tools" },
    names.length > 1 ? select : h("b", {}, run),
    h("button", { onclick: () => near("before"), "aria-label": "Previous episode" }, "\u2039"),
    input,
    h("button", { onclick: () => near("after"), "aria-label": "Next episode" }, "\u203a"),
  );
}

/** The number of the first turn with another agent or another response; 0 if there is none. */
function firstDifference(a, b) {
  if (!a.turns || !b.turns) return 0;
  const action = (turn) => turn && JSON.stringify([turn.agent, turn.response]);
  const length = Math.max(a.turns.length, b.turns.length);
  for (let index = 0; index < length; index++)
    if (action(a.turns[index]) !== action(b.turns[index])) return index + 1;
  return 0;
}
