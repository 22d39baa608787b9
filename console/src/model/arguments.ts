// The arguments of a call, row by row: each member by its name, with its type, and how it differs from another call's.

export type JsonType = "text" | "number" | "true or false" | "null" | "list" | "object";

export interface Row {
  /** Where it stands, as names and positions: unique in its call. */
  path: string;
  name: string;
  depth: number;
  type: JsonType;
  /** A leaf as it is sent; of a list or an object, how many members it has. */
  value: string;
  isLeaf: boolean;
}

export interface ComparedRow extends Row {
  /** What the other call had here; null where that is the same, undefined where it had nothing here. */
  before: string | null | undefined;
}

function typeOf(value: unknown): JsonType {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "list";
  switch (typeof value) {
    case "string":
      return "text";
    case "number":
      return "number";
    case "boolean":
      return "true or false";
    default:
      return "object";
  }
}

/** All members of a document, in its order, those of a member after it. */
export function listRows(document: unknown): Row[] {
  const rows: Row[] = [];
  const add = (value: unknown, name: string, path: string, depth: number): void => {
    const type = typeOf(value);
    const members = type === "list" || type === "object" ? Object.entries(value as object) : null;
    const shown = members === null ? (type === "text" ? (value as string) : String(value ?? null)) : String(members.length);
    rows.push({ path, name, depth, type, value: shown, isLeaf: members === null });
    members?.forEach(([key, each]) => add(each, type === "list" ? `[${key}]` : key, `${path}/${JSON.stringify(key)}`, depth + 1));
  };
  const isObject = typeOf(document) === "object";
  if (isObject) for (const [key, each] of Object.entries(document as object)) add(each, key, `/${JSON.stringify(key)}`, 0);
  else add(document, "", "", 0);
  return rows;
}

/** A leaf in words that tell its type: a text stands in quotes. */
export function quoteLeaf({ type, value }: Row): string {
  return type === "text" ? `"${value}"` : value;
}

export interface Comparison {
  rows: ComparedRow[];
  /** What the other call had and this one does not. */
  gone: Row[];
}

/** The rows of a call, each beside what another call had in its place. */
export function compareRows(document: unknown, other: unknown): Comparison {
  const before = new Map(listRows(other).map((each) => [each.path, each]));
  const rows = listRows(document).map((row): ComparedRow => {
    const was = before.get(row.path);
    before.delete(row.path);
    if (was === undefined) return { ...row, before: undefined };
    if (was.type === row.type && was.value === row.value) return { ...row, before: null };
    return { ...row, before: was.isLeaf ? quoteLeaf(was) : `${was.type} of ${was.value}` };
  });
  return { rows, gone: [...before.values()].filter((each) => each.isLeaf) };
}
