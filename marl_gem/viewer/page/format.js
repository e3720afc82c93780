// Numbers for people. What JSON has no number for comes as text: "inf", "nan".

const plain = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => plain.format(n);

export const brief = (n) => (Math.abs(n) < 10_000 ? plain.format(n) : short.format(n));

/** A number with its sign and three digits: +1, −0.333. */
export function signed(value) {
  if (typeof value !== "number") return String(value);
  const digits = Number.isInteger(value) ? String(Math.abs(value)) : String(Number(Math.abs(value).toPrecision(3)));
  return (value > 0 ? "+" : value < 0 ? "\u2212" : "") + digits;
}

export function money(dollars) {
  if (dollars == null) return "\u2013";
  if (!Number.isFinite(dollars)) return String(dollars);
  if (dollars === 0 || dollars >= 10) return `$${plain.format(Math.round(100 * dollars) / 100)}`;
  return dollars < 0.0001 ? "<$0.0001" : `$${dollars.toFixed(dollars < 0.1 ? 4 : 2)}`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return String(seconds);
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; size >= 1000 && unit < units.length - 1; unit++) size /= 1000;
  return `${size.toFixed(unit && size < 10 ? 1 : 0)} ${units[unit]}`;
}

export function ago(timestamp) {
  const seconds = Math.max(0, Date.now() / 1000 - timestamp);
  if (seconds < 60) return "just now";
  for (const [unit, length] of [
    ["day", 86400],
    ["hour", 3600],
    ["minute", 60],
  ]) {
    const number = Math.floor(seconds / length);
    if (number)
      return number > 60
        ? new Date(timestamp * 1000).toLocaleDateString()
        : `${number} ${unit}${number > 1 ? "s" : ""} ago`;
  }
}

export const percent = (part, total) =>
  total ? `${((100 * part) / total).toFixed(part && part < total ? 1 : 0)}%` : "\u2013";

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/** A share of 1 in percent, with one digit: 36.7%. */
export const share = (value) => (typeof value === "number" ? `${(100 * value).toFixed(1)}%` : "\u2013");

/** A number in three digits. */
export const digits = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))).replace("-", "\u2212") : String(value));

/** An estimate as its value and its 95% interval, which is empty where there is none: ["36.7%", "20.0\u201353.3"]. */
export function estimated(found, write = share) {
  if (!found) return ["\u2013", ""];
  if (found.low == null || found.high == null) return [write(found.mean), ""];
  return [write(found.mean), `${write(found.low).replace("%", "")}${write === share ? "\u2013" : " to "}${write(found.high).replace("%", "")}`];
}

/** The main number of a run, see `Score` in listing.py. */
export const scoreText = ({ what, value, low, high }) =>
  estimated({ mean: value, low, high }, what === "rating" ? (number) => String(Math.round(number)) : share);

/** A time in full. */
export const when = (timestamp) => new Date(timestamp * 1000).toLocaleString();
