// What the worker does with streams and files: every entry in turn, the first bad one named.

import type { Json } from "./canonical";
import { OtherFormat, type StreamCheck } from "./chain";
import { isSame, type Members, Mismatch } from "./fields";
import { BadLine, splitExport, type RawEntry } from "./reading";
import { KIT_PREFIX, KitCheck, NAMES_STREAM, NamesCheck } from "./registers";
import { SessionCheck, type Origin } from "./session";
import { SPACE_PREFIX, SpaceCheck } from "./space";

export interface Verdict {
  state: "holds" | "broken" | "unknown";
  stream: string;
  /** How many entries hold: all of them, or those before the first bad one. */
  events: number;
  commitments: number;
  decided: boolean;
  /** The hash of the last entry that holds. */
  head: string;
  left: number | null;
  milliseconds: number;
  /** Where it is broken: the first bad event. */
  seq: number;
  reason: string;
  expected: string;
  found: string;
  /** Whether a head that the reader kept is in it: its last entry, one before that, or none. */
  kept: "last" | "earlier" | "none";
  /** What could not be checked here, a sentence each. */
  notChecked: string[];
}

/** A file: what is so of each stream, and the line that is none of an export. Streams before that line are judged. */
export interface FileVerdict {
  streams: Verdict[];
  problem: { line: number; reason: string } | null;
}

/** The last entry of a stream at some time, as the reader kept it. */
export interface KeptHead {
  /** Null for a hash alone, which may be of any stream. */
  stream: string | null;
  seq: number | null;
  hash: string;
}

function openCheck(stream: string): StreamCheck {
  if (stream.startsWith(SPACE_PREFIX)) return new SpaceCheck(stream);
  if (stream.startsWith(KIT_PREFIX)) return new KitCheck(stream);
  return stream === NAMES_STREAM ? new NamesCheck(stream) : new SessionCheck(stream);
}

interface Checked {
  verdict: Verdict;
  origin: Origin | null;
}

function run(stream: string, entries: RawEntry[], progress: (done: number) => void, now: () => number): Checked {
  const began = now();
  const check = openCheck(stream);
  const verdict: Verdict = {
    state: "holds",
    stream,
    events: 0,
    commitments: 0,
    decided: !(check instanceof SpaceCheck),
    head: "",
    left: null,
    milliseconds: 0,
    seq: -1,
    reason: "",
    expected: "",
    found: "",
    kept: "none",
    notChecked: [],
  };
  try {
    for (const entry of entries) {
      check.append(entry);
      if (check.size % 256 === 0) progress(check.size);
    }
  } catch (error) {
    if (error instanceof Mismatch) breakAt(verdict, error.seq, error.reason, error.expected, error.found);
    else if (error instanceof OtherFormat) Object.assign(verdict, { state: "unknown", reason: error.message });
    else throw error;
  }
  verdict.events = check.size;
  verdict.commitments = check.commitments;
  verdict.head = check.head;
  verdict.left = check instanceof SessionCheck ? check.left : null;
  verdict.notChecked = [...check.notChecked];
  verdict.milliseconds = now() - began;
  return { verdict, origin: check instanceof SessionCheck ? check.origin : null };
}

function breakAt(verdict: Verdict, seq: number, reason: string, expected = "", found = ""): void {
  Object.assign(verdict, { state: "broken", seq, reason, expected, found, events: Math.min(verdict.events, seq) });
}

export function checkStream(
  stream: string,
  entries: RawEntry[],
  progress: (done: number) => void = () => undefined,
  now: () => number = () => performance.now(),
): Verdict {
  const { verdict, origin } = run(stream, entries, progress, now);
  if (origin !== null) verdict.notChecked.push(`whether its first events are those of the session that it is a fork of, ${origin.sessionId}`);
  return verdict;
}

/** Every stream of an export file, held against each other and against what the reader kept. */
export function checkFile(file: string, kept: KeptHead[] = [], progress: (done: number) => void = () => undefined, now: () => number = () => performance.now()): FileVerdict {
  const streams: Verdict[] = [];
  const forks: { verdict: Verdict; origin: Origin }[] = [];
  const read = new Map<string, RawEntry[]>();
  const isGood = (name: string): boolean => streams.some((each) => each.stream === name && each.state === "holds");
  let problem: FileVerdict["problem"] = null;
  try {
    for (const stream of splitExport(file)) {
      const { verdict, origin } = run(stream.name, stream.entries, progress, now);
      const last = stream.entries.length - 1;
      const ends = stream.headSeq === last && stream.headHash === verdict.head;
      if (verdict.state === "holds" && !ends) breakAt(verdict, last, "does not end where the file says", stream.headHash, verdict.head);
      holdAgainst(verdict, stream.entries, kept);
      streams.push(verdict);
      read.set(stream.name, stream.entries);
      if (origin !== null) forks.push({ verdict, origin });
    }
  } catch (error) {
    if (!(error instanceof BadLine)) throw error;
    problem = { line: error.line, reason: error.reason };
  }
  for (const { verdict, origin } of forks) {
    if (read.has(origin.sessionId) && isGood(origin.sessionId)) compareFork(verdict, origin, read);
    else verdict.notChecked.push(`whether its first events are those of the session that it is a fork of, ${origin.sessionId}: it is not whole in this file`);
  }
  for (const head of kept) {
    if (head.stream !== null && !read.has(head.stream) && problem === null) problem = { line: 0, reason: `${head.stream}, of which a head was kept, is not in the file` };
    if (head.stream === null && !streams.some((each) => each.kept !== "none") && problem === null) problem = { line: 0, reason: "the head that was kept is in none of its streams" };
  }
  return { streams, problem };
}

function holdAgainst(verdict: Verdict, entries: RawEntry[], kept: KeptHead[]): void {
  if (verdict.state !== "holds") return;
  for (const head of kept) {
    const seq = head.seq ?? entries.findIndex((each) => each.hash === head.hash);
    if (head.stream === null ? seq < 0 : head.stream !== verdict.stream) continue;
    if (seq >= entries.length) return breakAt(verdict, entries.length, `it had ${seq + 1} events when its head was kept: the last ones are missing`);
    const found = entries[seq]!.hash;
    if (found !== head.hash) return breakAt(verdict, seq, "another event than the head that was kept", head.hash, found);
    if (seq === entries.length - 1) verdict.kept = "last";
    else if (verdict.kept === "none") verdict.kept = "earlier";
  }
}

/** A fork repeats the messages of the session that it is of, but for those that it leaves out. */
function compareFork(verdict: Verdict, origin: Origin, read: Map<string, RawEntry[]>): void {
  if (verdict.state !== "holds") return;
  const theirs = read.get(origin.sessionId)!;
  const ours = read.get(verdict.stream)!;
  if (theirs.length <= origin.seq || ours.length <= origin.seq - origin.without.length) return breakAt(verdict, 0, "the fork or its origin is shorter than what is repeated");
  if (theirs[origin.seq]!.hash !== origin.hash) return breakAt(verdict, 0, "not the event of its origin", origin.hash, theirs[origin.seq]!.hash);
  const first = readEntry(theirs[0]!);
  const repeated = theirs.slice(0, origin.seq + 1).map((raw, seq) => repeatMessage(raw, seq, first.payload["origin"]));
  for (const seq of origin.without) if (repeated[seq]!["verb"] !== "ELIMINATE") return breakAt(verdict, 0, "a fork leaves out an event that is no elimination");
  const left = repeated.filter((_, seq) => !origin.without.includes(seq));
  for (const [seq, message] of left.entries()) {
    if (!isSame(message, readMessage(ours[seq]!, seq))) return breakAt(verdict, seq, `not what ${origin.sessionId} was asked`);
  }
  const earlier = (first.payload["origin"] as RecordedOrigin | undefined)?.declared_by ?? [];
  const declaredBy = [...new Set([...earlier, first.actor?.["id"] ?? null])];
  if (!isSame(declaredBy, origin.declaredBy)) breakAt(verdict, 0, "not those who declared the session that it is a fork of");
}

interface Message {
  verb: Json;
  payload: Members;
}

interface RecordedOrigin {
  declared_by: Json[];
  seq: number;
  without?: number[];
}

function readEntry(raw: RawEntry): Message & { actor?: Members } {
  return JSON.parse(raw.text) as Message & { actor?: Members };
}

function readMessage(raw: RawEntry, seq: number): { [name: string]: Json } {
  const { verb, payload } = readEntry(raw);
  const { origin: _, ...rest } = payload;
  return { verb, payload: seq === 0 ? rest : payload };
}

/** A message as a fork repeats it: with who sent a report first. */
function repeatMessage(raw: RawEntry, seq: number, origin: Json | undefined): { [name: string]: Json } {
  const message = readMessage(raw, seq);
  const from = origin as RecordedOrigin | undefined;
  const repeats = from !== undefined && seq > 0 && seq <= from.seq - (from.without?.length ?? 0);
  const sender = readEntry(raw).actor?.["id"];
  if (message["verb"] !== "ELIMINATE" || repeats || sender === undefined) return message;
  return { ...message, payload: { ...(message["payload"] as Members), first_sent_by: sender } };
}

const HASH = /^[0-9a-f]{64}$/;

/** What a reader kept: a hash, or the lines of `cmbs heads`. An Error says what it is not. */
export function readKept(text: string): KeptHead[] {
  const kept: KeptHead[] = [];
  for (const line of text.split("\n").map((each) => each.trim())) {
    if (line === "") continue;
    if (HASH.test(line)) {
      kept.push({ stream: null, seq: null, hash: line });
      continue;
    }
    let record: { format?: unknown; stream_id?: unknown; size?: unknown; head_hash?: unknown };
    try {
      record = JSON.parse(line) as typeof record;
    } catch {
      throw new Error("a head is 64 hexadecimal digits, or a line of cmbs heads");
    }
    if (record.format === "cmbs/1/heads") continue;
    const { stream_id: stream, size, head_hash: hash } = record;
    if (typeof stream !== "string" || typeof size !== "number" || !Number.isSafeInteger(size) || size < 1 || typeof hash !== "string" || !HASH.test(hash)) {
      throw new Error("a head is 64 hexadecimal digits, or a line of cmbs heads");
    }
    kept.push({ stream, seq: size - 1, hash });
  }
  return kept;
}
