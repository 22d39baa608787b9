// Entries as the bytes that were hashed, out of an answer of /audit or a line of an export.

export interface RawEntry {
  /** The entry's own canonical text. */
  text: string;
  hash: string;
}

/** Of entries; an export says what it is beside it. */
export const FORMAT = "cmbs/1";
const EXPORT_FORMAT = `${FORMAT}/export`;
const EARLIER_FORMAT = /^cmbs-[a-z]+\/[0-9]+$/;
const TAIL = /,"event_hash":"([0-9a-f]{64})"\}$/;
const LINE = /^\{"event_hash":"([0-9a-f]{64})","entry":(\{[\s\S]*\})\}$/;

/** The end of the JSON value that begins at `start`: an object, by its braces outside of strings. */
function endOfObject(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === 34) {
      at++;
      while (text.charCodeAt(at) !== 34) at += text.charCodeAt(at) === 92 ? 2 : 1;
    } else if (unit === 123) depth++;
    else if (unit === 125 && --depth === 0) return at + 1;
  }
  throw new Error("the answer ends inside an event");
}

/** The entries of an answer of /audit: the stored bytes, with `event_hash` put before the last brace. */
export function splitAnswer(answer: string): { entries: RawEntry[]; cursor: string | null } {
  const opening = '{"events":[';
  if (!answer.startsWith(opening)) throw new Error("not an answer of /audit");
  const entries: RawEntry[] = [];
  let at = opening.length;
  while (answer[at] === "{") {
    const end = endOfObject(answer, at);
    const event = answer.slice(at, end);
    const tail = TAIL.exec(event);
    if (!tail) throw new Error("an event without its hash");
    entries.push({ text: `${event.slice(0, tail.index)}}`, hash: tail[1]! });
    at = end + (answer[end] === "," ? 1 : 0);
  }
  const rest = JSON.parse(`{"events":[${answer.slice(at)}`) as { next_cursor?: string | null };
  return { entries, cursor: rest.next_cursor ?? null };
}

/** A line of a file that is not what it must be. */
export class BadLine extends Error {
  constructor(
    readonly line: number,
    readonly reason: string,
  ) {
    super(`line ${line}: ${reason}`);
  }
}

export interface ExportedStream {
  name: string;
  /** The number of the line of its first entry. */
  line: number;
  entries: RawEntry[];
  headSeq: number;
  headHash: string;
}

const RESERVED = ["identity:", "heads:"];
const LEFT_OUT = ["identity:keys", "heads:server"];

/** The text of a file, byte for byte: one that is not UTF-8 is none, and a byte order mark stays in it. */
export function decodeFile(bytes: ArrayBuffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error("the file is not UTF-8, so it is no export");
  }
}

/** The streams of a file that `cmbs export` wrote, one after the other; BadLine after those that are whole. */
export function* splitExport(file: string): Generator<ExportedStream> {
  const lines = file.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  checkHeader(lines[0] ?? "");
  const names = new Set<string>();
  let entries: RawEntry[] = [];
  for (const [at, text] of lines.entries()) {
    const line = at + 1;
    if (line === 1) continue;
    const matched = LINE.exec(text);
    if (matched) {
      entries.push({ hash: matched[1]!, text: matched[2]! });
      continue;
    }
    const record = readRecord(line, text);
    if (typeof record["end_of"] === "string" && hasMembers(record, "end_of head_seq head_hash")) {
      const name = record["end_of"];
      if (entries.length === 0) throw new BadLine(line, "the end of a stream without entries");
      if (names.has(name)) throw new BadLine(line - entries.length, `the stream ${name} occurs for the second time`);
      if (RESERVED.some((prefix) => name.startsWith(prefix))) throw new BadLine(line - entries.length, `the stream ${name} is never exported`);
      names.add(name);
      yield { name, line: line - entries.length, entries, headSeq: Number(record["head_seq"]), headHash: String(record["head_hash"]) };
      entries = [];
      continue;
    }
    if (!hasMembers(record, "sessions")) throw new BadLine(line, "neither an entry, nor the end of a stream, nor the count");
    if (entries.length > 0) throw new BadLine(line, "the entries of a stream without an end");
    if (record["sessions"] !== names.size) throw new BadLine(line, `the count is not ${names.size}, the number of streams in the file`);
    if (line < lines.length) throw new BadLine(line + 1, "a line after the count");
    return;
  }
  throw new BadLine(lines.length + 1, "the file ends before its count: it was cut off");
}

function checkHeader(text: string): void {
  const header = readRecord(1, text);
  const format = header["format"];
  if (EARLIER_FORMAT.test(String(format))) throw new BadLine(1, "an export of an earlier format, which this software does not read");
  if (format !== EXPORT_FORMAT) throw new BadLine(1, `not an export: its first line does not say ${EXPORT_FORMAT}`);
  const leftOut = header["left_out"];
  const isList = Array.isArray(leftOut) && leftOut.every((each) => LEFT_OUT.includes(each as string));
  const { fingerprint, ...rest } = header;
  if (!isList || !hasMembers(rest, "format left_out") || !(fingerprint === undefined || typeof fingerprint === "string")) throw new BadLine(1, "not the header of an export");
}

function readRecord(line: number, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new BadLine(line, "neither an entry nor JSON");
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new BadLine(line, "not an object");
  return value as Record<string, unknown>;
}

function hasMembers(record: Record<string, unknown>, names: string): boolean {
  return Object.keys(record).sort().join(" ") === names.split(" ").sort().join(" ");
}

/** An export file of one stream. */
export function joinExport(name: string, entries: RawEntry[]): string {
  const last = entries[entries.length - 1]!;
  const end = JSON.stringify({ end_of: name, head_seq: entries.length - 1, head_hash: last.hash });
  const lines = entries.map((entry) => `{"event_hash":"${entry.hash}","entry":${entry.text}}`);
  return [JSON.stringify({ format: EXPORT_FORMAT, left_out: ["identity:keys"] }), ...lines, end, `{"sessions":1}`, ""].join("\n");
}
