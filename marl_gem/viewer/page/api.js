// Questions to the server.

export class Stopped extends Error {}

/** The answer to a question. Throws an Error with the server's message, or Stopped if the server is gone. */
export async function ask(question, parameters = {}, signal) {
  if (globalThis.bundle) return globalThis.bundle.answer(question, parameters); // static pages, see bundle.js
  let response;
  try {
    response = await fetch(`api/${question}?${encode(parameters)}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Stopped("The viewer is not running any more. Start it again with marl-gem view, then reload this page.");
  }
  const answer = JSON.parse(await response.text(), bare);
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Objects without a prototype: an agent may be called "constructor" or "__proto__". */
const bare = (_, value) =>
  value && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value;

/** Parameters as a URL's query; empty ones are left out. */
export function encode(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of [value].flat()) if (item != null && item !== "" && item !== false) query.append(name, item);
  }
  return query;
}

/** The address of a picture in a run's folder. */
export const picture = (run, name) => globalThis.bundle?.picture(run, name) ?? `picture?${encode({ run, name })}`;

export const link = (page, parameters) => `#/${page}?${encode(parameters)}`;

/** The part of a page's parameters that selects and sorts episodes. */
export function queryOf(parameters) {
  const query = {};
  for (const name of ["seat", "model", "text", "sort", "reverse", "task", "grade", "reason"]) query[name] = parameters.get(name) ?? "";
  return { ...query, filter: parameters.getAll("filter") };
}
