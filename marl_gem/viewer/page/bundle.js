// The answers of a bundle: static pages, whose data lie in files beside them. Only these pages load this script.

"use strict";

globalThis.bundle = (() => {
  const texts = new Map(); // the name of a data file: its content
  const loading = new Map();
  const policy = globalThis.trustedTypes?.createPolicy("bundle", {
    createScriptURL(address) {
      if (!/^data\/\d+\/(run|episodes|records|comparison)-\d+\.js$/.test(address)) throw new Error(`no file of this bundle: ${address}`);
      return address;
    },
  });

  /** Objects without a prototype: an agent may be called "constructor" or "__proto__". */
  const bare = (_, value) =>
    value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value;

  /** A data file calls this with its name and its content, which is JSON. */
  const add = (name, text) => texts.set(name, text);

  /** The content of a data file, parsed anew each time, so that nobody changes what others get. */
  async function read(name) {
    if (!texts.has(name)) {
      if (!loading.has(name)) loading.set(name, load(name));
      await loading.get(name);
    }
    return JSON.parse(texts.get(name), bare);
  }

  function load(name) {
    const script = document.createElement("script");
    const address = `data/${name}.js`;
    script.src = policy ? policy.createScriptURL(address) : address;
    return new Promise((done, fail) => {
      script.onload = () => done(script.remove());
      script.onerror = () => fail(new Error(`${address} is missing: copy the complete folder`));
      document.head.append(script);
    });
  }

  const numberOf = async (run) => {
    const number = (await read("index")).names.indexOf(run);
    if (number < 0) throw new Error(`there is no run ${JSON.stringify(run)} in these pages`);
    return number;
  };

  const readRun = async (run) => read(`${await numberOf(run)}/run-0`);

  /** Where an episode is, by its key or id: its key, and the number of the files with it. */
  async function locate(run, name) {
    const { rows, chunks } = await readRun(run);
    const index = rows.findIndex((row) => row.key === name);
    const found = index >= 0 ? index : rows.findIndex((row) => row.id === name);
    if (found < 0) throw new Error(`these pages have no episode ${JSON.stringify(name)} of ${run}`);
    return { key: rows[found].key, chunk: chunks[found] };
  }

  async function readEpisode(run, name) {
    const { key, chunk } = await locate(run, name);
    return (await read(`${await numberOf(run)}/episodes-${chunk}`)).find((episode) => episode.key === key);
  }

  async function readRecord(run, name) {
    const { key, chunk } = await locate(run, name);
    const record = (await read(`${await numberOf(run)}/records-${chunk}`))[key];
    if (!record) throw new Error(`the record of episode ${name} is too long for these pages`);
    return record;
  }

  async function readComparison(run, run2) {
    const name = `${await numberOf(run)}/comparison-${await numberOf(run2)}`;
    if ((await read("index")).comparisons.includes(name)) return read(name);
    throw new Error(`These pages have no comparison of ${run} and ${run2}: runs of the same kind and scenario are compared. marl-gem compare compares any.`);
  }

  // Which episodes are shown, as `marl_gem.viewer.query` says it

  const FILTERS = {
    success: (row, outcomes) => outcomes.some((outcome) => outcome.success),
    failure: (row, outcomes) => outcomes.some((outcome) => !outcome.success),
    win: (row, outcomes) => outcomes.some((outcome) => outcome.label === "win"),
    draw: (row, outcomes) => outcomes.some((outcome) => outcome.label === "draw"),
    loss: (row, outcomes) => outcomes.some((outcome) => outcome.label === "loss"),
    error: (row) => row.error != null,
    illegal: (row, outcomes, agents) => agents.some((agent) => agent in row.illegal),
    truncated: (row) => Boolean(row.limit) || row.ending === "truncated",
  };

  const SORTS = {
    turns: (row) => row.turns,
    tokens: (row) => row.tokens,
    cost: (row) => row.cost ?? -1,
    seconds: (row) => row.seconds,
    return: (row, agents) => row.returns[agents.find((agent) => agent in row.returns)] ?? 0,
    seed: (row) => Number(row.seed),
    task: (row) => -(row.task ?? 1),
  };

  const agentsOf = (row, { seat, model }) =>
    Object.keys({ ...row.returns, ...row.models }).filter(
      (agent) => (!seat || seat === agent) && (!model || row.models[agent] === model),
    );

  function fits(row, query) {
    const filters = [query.filter ?? []].flat();
    if (filters.includes("failed") && !row.key.startsWith("e")) return false;
    if (row.broken) {
      const asked = query.seat || query.model || query.grade || query.reason || (query.task ?? "") !== "";
      return filters.every((name) => ["failed", "broken"].includes(name)) && !asked;
    }
    if (filters.includes("broken")) return false;
    const agents = agentsOf(row, query);
    if (!agents.length && (query.seat || query.model)) return false;
    if ((query.task ?? "") !== "" && String(row.task) !== String(query.task)) return false;
    if (query.grade && row.grade !== query.grade) return false;
    const outcomes = agents.filter((agent) => agent in row.outcomes).map((agent) => row.outcomes[agent]);
    if (query.reason && !outcomes.some((outcome) => outcome.reason === query.reason)) return false;
    return filters.every((name) => FILTERS[name]?.(row, outcomes, agents) ?? true);
  }

  async function select(run, query) {
    const { rows, chunks } = await readRun(run);
    let found = rows.filter((row) => fits(row, query));
    if (query.text) {
      const keys = await keysWith(run, new Set(chunks), query.text.toLowerCase());
      found = found.filter((row) => keys.has(row.key));
    }
    if (!query.sort) return query.reverse ? found.reverse() : found;
    const value = (row) => SORTS[query.sort](row, agentsOf(row, query));
    const sign = query.reverse ? 1 : -1;
    const sorted = found.filter((row) => !row.broken).sort((a, b) => sign * (value(a) - value(b)));
    return [...sorted, ...found.filter((row) => row.broken)];
  }

  async function keysWith(run, chunks, text) {
    const number = await numberOf(run);
    const keys = new Set();
    for (const chunk of chunks)
      for (const episode of await read(`${number}/episodes-${chunk}`)) {
        const parts = (episode.turns ?? []).flatMap((turn) => [...turn.observation, ...turn.response]);
        parts.push(...(episode.ends ?? []).flatMap((end) => end.observation));
        const words = parts.flatMap((part) => [part.name ?? "", (part.label ?? "") + part.text]);
        words.push(episode.id ?? "", episode.raw ?? "", episode.error?.message ?? "");
        if (words.some((word) => word.toLowerCase().includes(text))) keys.add(episode.key);
      }
    return keys;
  }

  async function position({ run, key, ...query }) {
    const found = await select(run, query);
    const index = found.findIndex((row) => row.key === key);
    const near = (step) => (index < 0 ? null : (found[index + step]?.key ?? null));
    return { index: index < 0 ? null : index, total: found.length, before: near(-1), after: near(1) };
  }

  /** An episode of the same task in another run or as a repeat in this one, or else the next one; as in `viewer.api`. */
  async function counterpart({ run, key, other }) {
    const rows = (await readRun(run)).rows;
    const index = rows.findIndex((row) => row.key === key);
    const near = other && other !== run ? (await readRun(other)).rows : [...rows.slice(index + 1), ...rows.slice(0, index)];
    let nearest = null;
    for (const row of near) if (!nearest || difference(rows[index], row) < difference(rows[index], nearest)) nearest = row;
    return { key: nearest?.key ?? null, same: nearest != null && difference(rows[index], nearest) < ANOTHER };
  }

  const ANOTHER = 3; // another task

  function difference(episode, other) {
    if (episode.broken || other.broken || other.scenario !== episode.scenario || other.task !== episode.task) return ANOTHER;
    if (other.seed !== episode.seed) return episode.task == null ? ANOTHER : 2;
    return other.repeat === episode.repeat ? 0 : 1;
  }

  const answers = {
    runs: async () => (await read("index")).runs,
    run: async ({ run }) => (await readRun(run)).run,
    progress: async () => ({ reading: null }),
    curves: async ({ run, stamp }) => {
      const { curves } = await readRun(run);
      if (!curves) throw new Error(`${run} is no training run`);
      return stamp === curves.stamp ? { stamp } : curves;
    },
    episodes: async ({ run, start = 0, count = 100, ...query }) => {
      const found = await select(run, query);
      return { total: found.length, rows: found.slice(start, Number(start) + Number(count)) };
    },
    position,
    counterpart,
    episode: ({ run, key }) => readEpisode(run, key),
    record: async ({ run, key }) => ({ record: await readRecord(run, key) }),
    comparison: ({ run, run2 }) => readComparison(run, run2),
  };

  async function answer(question, parameters) {
    if (!Object.hasOwn(answers, question)) throw new Error("Shared pages do not have this; marl-gem view shows it.");
    return answers[question](parameters);
  }

  /** The address of a picture of a run, which has been asked for before. */
  const picture = (run, name) => {
    const number = JSON.parse(texts.get("index")).names.indexOf(run);
    const { pictures } = JSON.parse(texts.get(`${number}/run-0`)).run;
    return `data/${number}/${pictures.indexOf(name)}.png`;
  };

  return { add, answer, picture };
})();
