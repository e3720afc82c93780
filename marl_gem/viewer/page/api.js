// Questions to the server.

export class Stopped extends Error {}

/** The answer to a question. Throws an Error with what the server said, or Stopped if it is gone. */
export async function ask(question, parameters = {}, signal) {
  let response;
  try {
    response = await fetch(`api/${question}?${encode(parameters)}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Stopped("The viewer is not running any more. Start it again with marl-gem view, then reload this page.");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Parameters as they stand in a URL; those that are empty are left out. */
export function encode(parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) if (one != null && one !== "" && one !== false) query.append(name, one);
  }
  return query;
}

export const link = (page, parameters) => `#/${page}?${encode(parameters)}`;

/** What of a page's parameters says which episodes, and in what order. */
export function queryOf(parameters) {
  const query = {};
  for (const name of ["seat", "model", "text", "sort", "reverse"]) query[name] = parameters.get(name) ?? "";
  return { ...query, filter: parameters.getAll("filter") };
}
