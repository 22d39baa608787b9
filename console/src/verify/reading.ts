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

export interface ExportedStream {
  name: string;
  entries: RawEntry[];
  headSeq: number;
  headHash: string;
}

/** The streams of a file that `cmbs export` wrote. */
export function splitExport(file: string): ExportedStream[] {
  const lines = file.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  const header = JSON.parse(lines[0] ?? "{}") as { format?: string };
  if (EARLIER_FORMAT.test(String(header.format))) throw new Error("an export of an earlier format, which this software does not read");
  if (header.format !== EXPORT_FORMAT) throw new Error(`not an export: its first line does not say ${EXPORT_FORMAT}`);
  const streams: ExportedStream[] = [];
  let entries: RawEntry[] = [];
  for (const [at, line] of lines.slice(1, -1).entries()) {
    const matched = LINE.exec(line);
    if (matched) {
      entries.push({ hash: matched[1]!, text: matched[2]! });
      continue;
    }
    const end = JSON.parse(line) as { end_of?: string; head_seq: number; head_hash: string };
    if (typeof end.end_of !== "string") throw new Error(`line ${at + 2} is neither an entry nor the end of a stream`);
    streams.push({ name: end.end_of, entries, headSeq: end.head_seq, headHash: end.head_hash });
    entries = [];
  }
  const count = JSON.parse(lines[lines.length - 1] ?? "{}") as { sessions?: number };
  if (entries.length > 0 || count.sessions !== streams.length) throw new Error("the export is cut off");
  return streams;
}

/** An export file of one stream. */
export function joinExport(name: string, entries: RawEntry[]): string {
  const last = entries[entries.length - 1]!;
  const end = JSON.stringify({ end_of: name, head_seq: entries.length - 1, head_hash: last.hash });
  const lines = entries.map((entry) => `{"event_hash":"${entry.hash}","entry":${entry.text}}`);
  return [JSON.stringify({ format: EXPORT_FORMAT, left_out: ["identity:keys"] }), ...lines, end, `{"sessions":1}`, ""].join("\n");
}
