// Decides every event of a session again, as docs/reference/export.md says, and compares: bytes, hashes, chain, decisions
// and survivor commitments. Written from that document, so it is a second opinion.

import type { Schemas } from "../api/client";
import type { AuditEvent } from "../model/log";
import { canonicalize, comparePoints, type Json } from "./canonical";
import { MerkleTree, Survivors, commitTo, encode, hashLeaf, toHex } from "./merkle";
import { FORMAT, type RawEntry } from "./reading";

const NO_HASH = "0".repeat(64);
const STAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
const FIRST_DIGEST_POINT = 1000;

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

/** An entry of a format that this page was not written for: neither good nor bad. */
export class OtherFormat extends Error {}

type Verdict = { [name: string]: Json } | null;

/** An entry as it says that it is: of one that is not, the first check that reads it fails. */
interface Entry extends Omit<Schemas["AuditEvent"], "event_hash" | "payload" | "outcome">, Pick<AuditEvent, "payload"> {
  outcome: Verdict;
}

function expect(holds: boolean, reason: string, expected: unknown = "", found: unknown = ""): void {
  if (!holds) throw new Mismatch(reason, String(expected), String(found));
}

/** The chain of any stream: canonical bytes, hashes, links, numbers. */
export class ChainCheck {
  size = 0;
  head = NO_HASH;
  private digestPoint = FIRST_DIGEST_POINT;
  private readonly eventIds = new Set<string>();

  constructor(
    private readonly streamId: string,
    private readonly isSpace: boolean,
  ) {}

  append(raw: RawEntry): Entry {
    const read = JSON.parse(raw.text);
    const entry: Entry = read;
    if (entry.format !== FORMAT) throw new OtherFormat(`event ${this.size} is not of the format ${FORMAT}, which is the only one that this page reads`);
    expect(canonicalize(read) === raw.text, "bytes are not canonical");
    const hash = toHex(hashLeaf(encode(raw.text)));
    expect(hash === raw.hash, "hash does not follow from the bytes", hash, raw.hash);
    expect(entry.prev_event_hash === this.head, "link does not follow", this.head, entry.prev_event_hash);
    expect(entry.seq === this.size, "number does not follow", this.size, entry.seq);
    expect(entry.stream_id === this.streamId, "event of another stream", this.streamId, entry.stream_id);
    expect(STAMP.test(entry.ts), "time has another form", "YYYY-MM-DDThh:mm:ss.ffffffZ", entry.ts);
    expect(!this.eventIds.has(entry.event_id), "event id occurs twice", "", entry.event_id);
    this.checkDigestPoint(entry);
    this.eventIds.add(entry.event_id);
    this.head = hash;
    this.size += 1;
    return entry;
  }

  private checkDigestPoint(entry: Entry): void {
    const due = entry.seq === this.digestPoint;
    if (due) this.digestPoint += this.isSpace ? FIRST_DIGEST_POINT : Math.max(FIRST_DIGEST_POINT, Math.floor(this.digestPoint / 4));
    expect((entry.state !== undefined) === due, "digest of the state at the wrong place");
    if (entry.state !== undefined) expect(/^[0-9a-f]{64}$/.test(entry.state), "digest has another form");
  }
}

export class SessionCheck {
  readonly chain: ChainCheck;
  commitments = 0;
  private universe = new Map<string, number>();
  private survivors: Survivors | null = null;
  private policy: Schemas["RecordedPolicy"] = { allow_force: false, stability_window: 0, validate_hypotheses: false };
  private readonly obligations = new Map<string, { before: number; left: boolean }>();
  private readonly concluded: string[] = [];
  private readonly observations = new Set<string>();
  private readonly keys = new Set<string>();
  private ended = false;

  constructor(private readonly sessionId: string) {
    this.chain = new ChainCheck(sessionId, false);
  }

  get left(): number {
    return this.survivors?.count ?? 0;
  }

  append(raw: RawEntry): void {
    const seq = this.chain.size;
    try {
      this.decide(this.chain.append(raw));
    } catch (error) {
      if (error instanceof Mismatch) error.seq = seq;
      else if (error instanceof SyntaxError || error instanceof TypeError) {
        const mismatch = new Mismatch(`cannot be read: ${error.message}`);
        mismatch.seq = seq;
        throw mismatch;
      }
      throw error;
    }
  }

  private decide(entry: Entry): void {
    expect(!this.ended, "something follows the end of the session");
    this.checkKey(entry);
    const first = entry.seq === 0;
    expect((entry.verb === "DECLARE_SESSION") === first, "declaration at the wrong place", "", entry.verb);
    if (first) this.declare(entry);
    const survivors = this.survivors!;
    this.compareCommitment(entry, entry.survivors_before_hash, "survivors before do not follow");
    const removed = entry.verb === "ELIMINATE" ? this.eliminate(entry) : [];
    const recorded = entry.delta.eliminated;
    expect(
      recorded.length === removed.length && removed.every((id, at) => id === recorded[at]),
      "what it ruled out does not follow",
      `${removed.length} ids`,
      `${recorded.length} ids`,
    );
    survivors.remove(removed.map((id) => this.universe.get(id)!));
    this.compareCommitment(entry, entry.survivors_after_hash, "survivors do not follow");
    const verdict = first ? entry.outcome : this.rule(entry);
    expect(
      canonicalize(verdict) === canonicalize(entry.outcome),
      "decision does not follow",
      canonicalize(verdict),
      canonicalize(entry.outcome),
    );
  }

  private checkKey(entry: Entry): void {
    if (entry.idempotency_key === undefined) return;
    const key = JSON.stringify([entry.actor?.id ?? null, entry.idempotency_key]);
    expect(!this.keys.has(key), "idempotency key occurs twice", "", entry.idempotency_key);
    this.keys.add(key);
  }

  private declare(entry: Entry): void {
    const ids = entry.payload.hypotheses!;
    expect(ids.length > 0, "universe is empty");
    for (let at = 0; at < ids.length; at++) {
      if (at > 0) expect(comparePoints(ids[at - 1]!, ids[at]!) < 0, "universe is not sorted", "", ids[at]);
      this.universe.set(ids[at]!, at);
    }
    const root = toHex(new MerkleTree(ids.map((id) => hashLeaf(encode(id)))).root());
    const outcome = entry.outcome ?? {};
    expect(outcome["universe_root"] === root, "universe root does not follow", root, outcome["universe_root"]);
    expect(outcome["universe_size"] === ids.length, "universe size does not follow", ids.length, outcome["universe_size"]);
    expect(Object.keys(outcome).length === 2, "outcome of the declaration has other members");
    this.survivors = new Survivors(ids.length);
    this.policy = entry.payload.policy!;
  }

  private compareCommitment(entry: Entry, found: string, reason: string): void {
    const expected = commitTo(this.sessionId, entry.prev_event_hash, this.survivors!.root());
    expect(expected === found, reason, expected, found);
    this.commitments += 1;
  }

  private eliminate(entry: Entry): string[] {
    const named = entry.payload.eliminated!;
    const pair = JSON.stringify([entry.payload.source_id, entry.payload.observation_id]);
    expect(!this.observations.has(pair), "observation occurs twice", "", pair);
    this.observations.add(pair);
    if (this.policy.eliminations === "observations") expect(entry.payload.probe !== null, "ruled out by free hand");
    for (let at = 0; at < named.length; at++) {
      if (at > 0) expect(comparePoints(named[at - 1]!, named[at]!) < 0, "ids are not sorted", "", named[at]);
      if (this.policy.validate_hypotheses) expect(this.universe.has(named[at]!), "id outside of the universe", "", named[at]);
    }
    return named.filter((id) => this.universe.has(id) && this.survivors!.has(this.universe.get(id)!));
  }

  private rule(entry: Entry): Verdict {
    const verdict = this.ruleByVerb(entry);
    const force = entry.verb === "REQUEST_TERMINATION" && entry.payload.context?.force === true;
    const refused = entry.verb === "REQUEST_TERMINATION" && verdict?.["approved"] === false;
    expect((entry.notes !== undefined) === (force && refused), "note at the wrong place");
    return verdict;
  }

  private ruleByVerb(entry: Entry): Verdict {
    const { payload } = entry;
    switch (entry.verb) {
      case "ELIMINATE":
        return null;
      case "UPDATE_CASE": {
        const lifted = payload.lift_obligation;
        if (lifted === undefined) return null;
        const obligation = this.obligations.get(lifted);
        if (!obligation || obligation.left) throw new Mismatch("obligation that is not active was lifted", "", lifted);
        obligation.left = true;
        return null;
      }
      case "ENTER_OBLIGATION": {
        const id = payload.obligation_id!;
        expect(!this.obligations.has(id), "obligation entered twice", "", id);
        this.obligations.set(id, { before: this.eliminated(), left: false });
        this.thresholds.set(id, payload.min_total_eliminations!);
        return null;
      }
      case "REQUEST_EXIT":
        return this.ruleExit(payload.obligation_id!);
      case "DECLARE_CONCLUSION":
        return this.ruleConclusion(payload.conclusion_id!);
      case "REQUEST_TERMINATION":
        return this.ruleTermination(payload.context?.force === true);
      default:
        throw new Mismatch("verb that is not defined", "", entry.verb);
    }
  }

  private readonly thresholds = new Map<string, number>();

  private eliminated(): number {
    return this.survivors!.size - this.survivors!.count;
  }

  private isBound(): boolean {
    return [...this.obligations.values()].some((each) => !each.left);
  }

  private ruleExit(id: string): Verdict {
    const obligation = this.obligations.get(id);
    if (!obligation) throw new Mismatch("exit from an obligation that was not entered", "", id);
    if (obligation.left) return { approved: false, reason: "obligation_not_active" };
    if (this.eliminated() - obligation.before < this.thresholds.get(id)!) return { approved: false, reason: "below_threshold" };
    obligation.left = true;
    return { approved: true, reason: "approved" };
  }

  private ruleConclusion(id: string): Verdict {
    if (this.isBound()) return { accepted: false, reason: "obligation_active" };
    const position = this.universe.get(id);
    const alive = position !== undefined && this.survivors!.has(position);
    if (this.policy.conclusions === "survivors" && !alive) return { accepted: false, reason: "not_a_survivor" };
    this.concluded.push(id);
    return { accepted: true, reason: "accepted" };
  }

  private ruleTermination(force: boolean): Verdict {
    const reason = this.findObstacle();
    if (reason !== null && !(force && this.policy.allow_force)) return { approved: false, reason };
    this.ended = true;
    return { approved: true, reason: reason === null ? "approved" : "forced" };
  }

  private findObstacle(): string | null {
    if (this.isBound()) return "obligation_active";
    if (this.survivors!.count !== 1) return "not_singleton";
    const wanted = this.policy.stability_window;
    const last = this.concluded.slice(-wanted || this.concluded.length);
    const stable = wanted === 0 || (last.length === wanted && last.every((id) => id === last[0]));
    return stable ? null : "conclusion_unstable";
  }
}
