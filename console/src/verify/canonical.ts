// Canonical JSON (RFC 8785): ECMAScript's own numbers and strings, keys in the order of their UTF-16 code units.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

// Half of a surrogate pair, which is no text that could be hashed.
const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

export function canonicalize(value: Json): string {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonicalize).join(",")}]`;
  const members = Object.keys(value)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${canonicalize(value[name]!)}`);
  return `{${members.join(",")}}`;
}

/** Whether this is a value that entries can hold: no half of a surrogate pair, no whole number that JSON may round. */
export function isExact(value: Json): boolean {
  if (typeof value === "string") return !LONE_SURROGATE.test(value);
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value) || Math.abs(value) >= 1e21;
  if (value === null || typeof value !== "object") return true;
  if (Array.isArray(value)) return value.every(isExact);
  return Object.keys(value).every((name) => isExact(name) && isExact(value[name]!));
}

/** By code point, which in UTF-8 is the order of the bytes; JavaScript itself compares UTF-16. */
export function comparePoints(left: string, right: string): number {
  const length = Math.min(left.length, right.length);
  for (let at = 0; at < length; at++) {
    const a = left.charCodeAt(at);
    const b = right.charCodeAt(at);
    if (a === b) continue;
    const high = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdfff;
    if (high(a) !== high(b)) return high(a) ? 1 : -1;
    return a - b;
  }
  return left.length - right.length;
}
