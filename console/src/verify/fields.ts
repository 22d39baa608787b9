// What an entry says, read strictly: the members that docs/reference/export.md names, of the types that it names.

import { canonicalize, comparePoints, type Json } from "./canonical";

/** What does not hold, at the event where it was found. */
export class Mismatch extends Error {
  seq = -1;

  constructor(
    readonly reason: string,
    readonly expected = "",
    readonly found = "",
  ) {
    super(reason);
  }
}

export type Members = { [name: string]: Json };

export const MAX_WHOLE = Number.MAX_SAFE_INTEGER;
export const STAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
const HASH = /^[0-9a-f]{64}$/;
const NOT_OF_A_LINE = /[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]/u;
const LABEL_NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$/;
const MAX_LINE = 200;
const CASE_TEXTS: [string, number][] = [["title", 200], ["owner", 200], ["severity", 40]];
const ACTOR_KINDS = ["policy_engine", "operator", "agent", "encoder", "tool", "executor"];

export function expect(holds: boolean, reason: string, expected: unknown = "", found: unknown = ""): asserts holds {
  if (!holds) throw new Mismatch(reason, String(expected), String(found));
}

/** A member, or undefined: what an object inherits is none of its members. */
export function member(of: Members, name: string): Json | undefined {
  return Object.hasOwn(of, name) ? of[name] : undefined;
}

/** A member, or what is meant where it is not there; null is a value like any other. */
export function memberOr(of: Members, name: string, missing: Json): Json {
  return member(of, name) === undefined ? missing : of[name]!;
}

export function takeObject(value: Json | undefined, place: string): Members {
  expect(value !== null && typeof value === "object" && !Array.isArray(value), `${place} is not an object`);
  return value;
}

/** The value, which is an object with exactly these members. */
export function takeMembers(value: Json | undefined, place: string, required: string, optional = ""): Members {
  const found = takeObject(value, place);
  const known = words(required);
  for (const name of known) expect(Object.hasOwn(found, name), `${place} has no member`, name);
  const others = Object.keys(found).filter((name) => !known.includes(name) && !words(optional).includes(name));
  expect(others.length === 0, `${place} has a member that is not defined`, "", others[0]);
  return found;
}

function words(names: string): string[] {
  return names === "" ? [] : names.split(" ");
}

export function takeText(value: Json | undefined, place: string): string {
  expect(typeof value === "string", `${place} is not a text`);
  return value;
}

export function takeBool(value: Json | undefined, place: string): boolean {
  expect(typeof value === "boolean", `${place} is neither true nor false`);
  return value;
}

export function takeNumber(value: Json | undefined, place: string, least = 0): number {
  expect(typeof value === "number" && Number.isSafeInteger(value) && value >= least, `${place} is not a whole number from ${least}`);
  return value;
}

export function takeList(value: Json | undefined, place: string): Json[] {
  expect(Array.isArray(value), `${place} is not a list`);
  return value;
}

export function takeHash(value: Json | undefined, place: string): string {
  expect(typeof value === "string" && HASH.test(value), `${place} is not 64 lower-case hexadecimal digits`);
  return value;
}

/** Ids by code point, each once. */
export function takeIds(value: Json | undefined, place: string): string[] {
  const ids = takeList(value, place).map((each) => takeText(each, place));
  for (let at = 1; at < ids.length; at++) expect(comparePoints(ids[at - 1]!, ids[at]!) < 0, `${place} is not sorted, or has an id twice`, "", ids[at]);
  return ids;
}

/** Null, or an object of the caller's own. */
export function takeOpaque(value: Json | undefined, place: string): Members | null {
  return value === null ? null : takeObject(value, place);
}

export function takeActor(value: Json | undefined): Members {
  const actor = takeMembers(value, "actor", "authenticated id key_id kind", "roles scopes");
  takeBool(actor["authenticated"], "actor.authenticated");
  takeText(actor["id"], "actor.id");
  if (actor["key_id"] !== null) takeText(actor["key_id"], "actor.key_id");
  expect(ACTOR_KINDS.includes(takeText(actor["kind"], "actor.kind")), "actor.kind is not a kind of actor", "", actor["kind"]);
  for (const name of ["roles", "scopes"]) if (Object.hasOwn(actor, name)) takeIds(actor[name], `actor.${name}`);
  return actor;
}

/** What is said of a case: lines of text, labels, agents. An update takes a text away by null, a declaration does not. */
export function checkCase(payload: Members, isUpdate: boolean): void {
  const least = isUpdate ? 0 : 1;
  const lines: [string, Json, number][] = [];
  if (Object.hasOwn(payload, "labels")) {
    const labels = takeObject(payload["labels"], "payload.labels");
    const names = Object.keys(labels);
    expect(names.length >= least && names.length <= 32, "payload.labels has too few or too many members");
    for (const name of names) {
      expect(LABEL_NAME.test(name), "payload.labels has a name that is none of a label", "", name);
      lines.push([`payload.labels.${name}`, labels[name]!, MAX_LINE]);
    }
  }
  for (const [name, longest] of CASE_TEXTS) {
    const text = member(payload, name);
    if (text !== undefined && !(isUpdate && text === null)) lines.push([`payload.${name}`, text, longest]);
  }
  if (Object.hasOwn(payload, "agents")) {
    const agents = takeIds(payload["agents"], "payload.agents");
    expect(agents.length >= least && agents.length <= 100, "payload.agents has too few or too many ids");
    for (const id of agents) expect(id.length > 0 && [...id].length <= 1024, "payload.agents has an id that is none");
  }
  for (const [place, text, longest] of lines) {
    const line = takeText(text, place);
    expect([...line].length <= longest && /[^ ]/.test(line) && !NOT_OF_A_LINE.test(line), `${place} is not a line of text`);
  }
}

export function isSame(left: Json, right: Json): boolean {
  return canonicalize(left) === canonicalize(right);
}
