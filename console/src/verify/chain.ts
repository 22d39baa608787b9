// The chain of any stream: canonical bytes, hashes, links, numbers, and what occurs only once.

import { canonicalize, isExact, type Json } from "./canonical";
import { encode, hashLeaf, toHex } from "./merkle";
import { expect, member, Mismatch, STAMP, takeActor, takeHash, takeObject, takeText, type Members } from "./fields";
import { FORMAT, type RawEntry } from "./reading";

const NO_HASH = "0".repeat(64);
const FIRST_DIGEST_POINT = 1000;
/** What every entry has. */
export const ENVELOPE = "event_id format outcome payload prev_event_hash seq stream_id ts verb";

/** An entry of a format that this page was not written for: neither good nor bad. */
export class OtherFormat extends Error {}

export interface Entry {
  members: Members;
  hash: string;
  verb: string;
  payload: Json;
  outcome: Json;
  actor: Members | null;
}

/** A stream, entry by entry. What is kept here is that of the entries that hold. */
export abstract class StreamCheck {
  size = 0;
  head = NO_HASH;
  commitments = 0;
  private digestPoint = FIRST_DIGEST_POINT;
  private readonly occurred = new Set<string>();
  /** What could be checked by nothing here, a sentence each. */
  readonly notChecked: string[] = [];

  constructor(readonly streamId: string) {}

  /** Hold the next entry against everything before it, and take it in; Mismatch where it does not hold. */
  append(raw: RawEntry): void {
    try {
      const entry = this.read(raw);
      this.check(entry);
      this.head = raw.hash;
      this.size += 1;
    } catch (error) {
      throw this.locate(error);
    }
  }

  /** What holds for this kind of stream. */
  protected abstract check(entry: Entry): void;

  /** Whose an idempotency key is; null where there are none. */
  protected abstract keyOwner(actor: Members | null): string | null;

  /** The digest point after one; null where there are none. */
  protected abstract nextDigestPoint(point: number): number | null;

  protected occurOnce(what: string, ...key: Json[]): void {
    const name = JSON.stringify([what, ...key]);
    expect(!this.occurred.has(name), `${what} occurs twice`, "", key.join(", "));
    this.occurred.add(name);
  }

  private locate(error: unknown): unknown {
    if (error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError) error = new Mismatch(`cannot be read: ${error.message}`);
    if (error instanceof Mismatch) error.seq = this.size;
    return error;
  }

  private read(raw: RawEntry): Entry {
    const read: Json = JSON.parse(raw.text);
    const members = takeObject(read, "the entry");
    this.checkFormat(members);
    expect(isExact(read) && canonicalize(read) === raw.text, "bytes are not canonical");
    const hash = toHex(hashLeaf(encode(raw.text)));
    expect(hash === raw.hash, "hash does not follow from the bytes", hash, raw.hash);
    expect(members["stream_id"] === this.streamId, "event of another stream", this.streamId, members["stream_id"]);
    expect(members["seq"] === this.size, "number does not follow", this.size, members["seq"]);
    expect(members["prev_event_hash"] === this.head, "link does not follow", this.head, members["prev_event_hash"]);
    expect(STAMP.test(takeText(members["ts"], "ts")), "time has another form", "YYYY-MM-DDThh:mm:ss.ffffffZ", members["ts"]);
    this.occurOnce("event id", takeText(members["event_id"], "event_id"));
    const verb = takeText(members["verb"], "verb");
    const actor = Object.hasOwn(members, "actor") ? takeActor(members["actor"]) : null;
    this.checkKey(members, actor);
    this.checkDigestPoint(members);
    return { members, hash, verb, payload: members["payload"] ?? null, outcome: members["outcome"] ?? null, actor };
  }

  private checkFormat(members: Members): void {
    const format = member(members, "format");
    if (format === FORMAT) return;
    const isOther = format === undefined ? Object.hasOwn(members, "v") : typeof format === "string" && /^cmbs(?:\/(?:[2-9]|[1-9][0-9]+)$|-)/.test(format);
    if (isOther) throw new OtherFormat(`event ${this.size} is not of the format ${FORMAT}, which is the only one that this page reads`);
    throw new Mismatch("format is not that of an entry", FORMAT, String(format));
  }

  private checkKey(members: Members, actor: Members | null): void {
    if (!Object.hasOwn(members, "idempotency_key")) return;
    const owner = this.keyOwner(actor);
    expect(owner !== null, "idempotency key in a stream that has none");
    this.occurOnce("idempotency key", takeText(members["idempotency_key"], "idempotency_key"), owner);
  }

  private checkDigestPoint(members: Members): void {
    const next = this.nextDigestPoint(this.digestPoint);
    const due = next !== null && this.size === this.digestPoint;
    if (due) this.digestPoint = next;
    const has = Object.hasOwn(members, "state");
    expect(has === due, "digest of the state at the wrong place");
    if (has) takeHash(members["state"], "state");
  }
}
