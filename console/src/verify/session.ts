// Decides every event of a session again, as docs/reference/export.md says, and compares: bytes, hashes, chain, decisions
// and survivor commitments. Written from that document, so it is a second opinion.

import { canonicalize, type Json } from "./canonical";
import { ENVELOPE, StreamCheck, type Entry } from "./chain";
import {
  checkCase,
  expect,
  isSame,
  member,
  Mismatch,
  STAMP,
  takeBool,
  takeHash,
  takeIds,
  takeList,
  takeMembers,
  takeNumber,
  takeObject,
  takeOpaque,
  takeText,
  type Members,
} from "./fields";
import { commitTo, encode, hashLeaf, MerkleTree, Survivors, toHex } from "./merkle";

const COMMITMENTS = "survivors_before_hash survivors_after_hash";
// What a policy may say beside what it must; the first word holds where it says nothing.
const POLICY_WORDS: { [name: string]: string[] } = {
  conclusions: ["any", "not_eliminated", "survivors", "decided"],
  eliminations: ["any", "observations"],
  foreign_tombstones: ["ignore", "eliminate"],
  looks: ["any", "once"],
};

/** What must come of a message. */
interface Effect {
  outcome: { [name: string]: Json } | null;
  eliminated: string[];
  hasNotes?: boolean;
}

export interface Origin {
  sessionId: string;
  seq: number;
  hash: string;
  without: number[];
  /** Who declared the session, and those that it was forked from; null of one without an actor. */
  declaredBy: Json[];
}

export class SessionCheck extends StreamCheck {
  origin: Origin | null = null;
  private universe = new Map<string, number>();
  private survivors = new Survivors(0);
  private policy: Members = {};
  private stabilityWindow = 0;
  private hasProvider = false;
  private kit: Members | null = null;
  private readonly obligations = new Map<string, { threshold: number; before: number; left: boolean }>();
  private readonly concluded: string[] = [];
  private readonly looks = new Set<string>();
  private kitObservations = 0;
  private ties = 0;
  private ended = false;

  get left(): number {
    return this.survivors.count;
  }

  protected override keyOwner(actor: Members | null): string {
    return JSON.stringify(actor === null ? null : actor["id"]);
  }

  protected override nextDigestPoint(point: number): number {
    return point + Math.max(1000, Math.floor(point / 4));
  }

  protected override check(entry: Entry): void {
    takeMembers(entry.members, "the entry", `${ENVELOPE} delta ${COMMITMENTS}`, "idempotency_key notes actor state");
    expect(entry.actor === null || entry.actor["authenticated"] === true, "actor was not authenticated");
    expect(!this.ended, "something follows the end of the session");
    expect((entry.verb === "DECLARE_SESSION") === (this.size === 0), "declaration at the wrong place", "", entry.verb);
    const effect = this.decide(entry.verb, entry.payload);
    this.checkAuthority(entry);
    const recorded = takeIds(takeMembers(entry.members["delta"], "delta", "eliminated")["eliminated"], "delta.eliminated");
    expect(isSame(recorded, effect.eliminated), "what it ruled out does not follow", `${effect.eliminated.length} ids`, `${recorded.length} ids`);
    expect(isSame(effect.outcome, entry.outcome), "decision does not follow", canonicalize(effect.outcome), canonicalize(entry.outcome));
    const notes = member(entry.members, "notes");
    expect((notes !== undefined) === (effect.hasNotes === true), "note at the wrong place");
    if (notes !== undefined) takeText(notes, "notes");
    this.compareCommitment(entry, "survivors_before_hash", "survivors before do not follow");
    this.survivors.remove(effect.eliminated.map((id) => this.universe.get(id)!));
    this.compareCommitment(entry, "survivors_after_hash", "survivors do not follow");
    this.commitments += 2;
    this.leaveOpen(entry);
  }

  /** What follows from the document of a kit, which is not read here. */
  private leaveOpen(entry: Entry): void {
    const payload = takeObject(entry.payload, "payload");
    if (entry.verb === "ELIMINATE" && payload["probe"] !== null && this.kit !== null) this.kitObservations += 1;
    else if (entry.verb === "DECLARE_CONCLUSION" && Object.hasOwn(payload, "tied_by")) this.ties += 1;
    else return;
    this.notChecked.length = 0;
    this.notChecked.push(`what ${this.kitObservations} observations over kits rule out, and ${this.ties} ties, follow from documents that this page does not read: cmbs verify reads them`);
  }

  private decide(verb: string, payload: Json): Effect {
    switch (verb) {
      case "DECLARE_SESSION":
        return this.declare(payload);
      case "ELIMINATE":
        return this.eliminate(payload);
      case "ENTER_OBLIGATION":
        return this.enter(payload);
      case "REQUEST_EXIT":
        return this.exit(payload);
      case "DECLARE_CONCLUSION":
        return this.conclude(payload);
      case "REQUEST_TERMINATION":
        return this.terminate(payload);
      case "UPDATE_CASE":
        return this.update(payload);
      default:
        throw new Mismatch("verb that is not defined", "", verb);
    }
  }

  private compareCommitment(entry: Entry, name: string, reason: string): void {
    const expected = commitTo(this.streamId, this.head, this.survivors.root());
    const found = takeHash(entry.members[name], name);
    expect(expected === found, reason, expected, found);
  }

  /** What is for operators or observers alone. What a fork repeats was allowed where it was said. */
  private checkAuthority(entry: Entry): void {
    if (this.origin !== null && this.size <= this.origin.seq - this.origin.without.length) return;
    const payload = takeObject(entry.payload, "payload");
    const changes = Object.hasOwn(payload, "agents") || Object.hasOwn(payload, "lift_obligation");
    if (entry.verb === "UPDATE_CASE" && changes && entry.actor !== null) {
      expect(entry.actor["kind"] === "operator", "agents of a case or an obligation were changed by another than an operator");
    }
    if (entry.verb !== "ELIMINATE") return;
    expect(!Object.hasOwn(payload, "first_sent_by"), "it repeats nothing of another session");
    if (this.isList(payload)) expect(entry.actor?.["kind"] === "operator", "a list of ids, not by an operator, in a session that takes probes alone");
    const observers = member(this.policy, "observers");
    if (observers === undefined) return;
    const actor = entry.actor === null ? null : (entry.actor["id"] ?? null);
    expect(takeIds(observers, "payload.policy.observers").some((each) => each === actor), "another than an observer of the session");
  }

  // --- messages ---

  private declare(value: Json): Effect {
    const optional = "agents hypothesis_attributes labels origin owner severity store_id symptoms title";
    const payload = takeMembers(value, "payload", "hypotheses metadata ontology policy provider", optional);
    const ids = takeIds(payload["hypotheses"], "payload.hypotheses");
    expect(ids.length > 0, "payload.hypotheses is empty");
    takeOpaque(payload["metadata"], "payload.metadata");
    const names = "causal_graph_ref causal_graph_version hypothesis_space_id hypothesis_version";
    const ontology = takeMembers(payload["ontology"], "payload.ontology", names);
    for (const name of names.split(" ")) takeText(ontology[name], `payload.ontology.${name}`);
    this.takePolicy(payload["policy"]);
    if (Object.hasOwn(payload, "store_id")) expect(takeText(payload["store_id"], "payload.store_id") !== "", "payload.store_id is empty");
    checkCase(payload, false);
    if (payload["provider"] !== null) this.takeProvider(payload["provider"]);
    if (Object.hasOwn(payload, "symptoms")) expect(takeIds(payload["symptoms"], "payload.symptoms").length > 0 && this.kit !== null, "payload.symptoms is empty, or of a session that is not over a kit");
    if (Object.hasOwn(payload, "origin")) this.takeOrigin(payload["origin"]);
    for (const [at, id] of ids.entries()) this.universe.set(id, at);
    if (Object.hasOwn(payload, "hypothesis_attributes")) this.checkAttributes(payload["hypothesis_attributes"]);
    this.survivors = new Survivors(ids.length);
    const root = toHex(new MerkleTree(ids.map((id) => hashLeaf(encode(id)))).root());
    return { outcome: { universe_root: root, universe_size: ids.length }, eliminated: [] };
  }

  private takePolicy(value: Json | undefined): void {
    const policy = takeMembers(value, "payload.policy", "allow_force stability_window validate_hypotheses", `${Object.keys(POLICY_WORDS).join(" ")} observers`);
    if (Object.hasOwn(policy, "observers")) expect(takeIds(policy["observers"], "payload.policy.observers").length > 0, "payload.policy.observers is empty");
    takeBool(policy["allow_force"], "payload.policy.allow_force");
    takeBool(policy["validate_hypotheses"], "payload.policy.validate_hypotheses");
    this.stabilityWindow = takeNumber(policy["stability_window"], "payload.policy.stability_window");
    for (const [name, words] of Object.entries(POLICY_WORDS)) {
      const word = member(policy, name);
      if (word === undefined) continue;
      expect(typeof word === "string" && words.includes(word), `payload.policy.${name} is none of its words`, words.join(", "), canonicalize(word));
    }
    this.policy = policy;
  }

  private takeProvider(value: Json | undefined): void {
    const provider = takeMembers(value, "payload.provider", "id version", "content_hash put_by");
    if (Object.hasOwn(provider, "put_by")) takeText(provider["put_by"], "payload.provider.put_by");
    takeText(provider["id"], "payload.provider.id");
    takeText(provider["version"], "payload.provider.version");
    this.hasProvider = true;
    if (!Object.hasOwn(provider, "content_hash")) return;
    this.kit = { id: provider["id"]!, content_hash: takeHash(provider["content_hash"], "payload.provider.content_hash") };
  }

  private takeOrigin(value: Json | undefined): void {
    const origin = takeMembers(value, "payload.origin", "declared_by event_hash seq session_id", "without");
    const declaredBy = takeList(origin["declared_by"], "payload.origin.declared_by");
    const isNamed = declaredBy.every((each) => each === null || typeof each === "string");
    expect(declaredBy.length > 0 && isNamed, "payload.origin.declared_by is not a list of ids, one at least");
    const seq = takeNumber(origin["seq"], "payload.origin.seq");
    const place = "payload.origin.without";
    const without = Object.hasOwn(origin, "without") ? takeList(origin["without"], place).map((each) => takeNumber(each, place, 1)) : [];
    const isOrdered = without.every((each, at) => each <= seq && (at === 0 || without[at - 1]! < each));
    expect(isOrdered && Object.hasOwn(origin, "without") === without.length > 0, `${place} is not some of the repeated events, in order`);
    this.origin = { sessionId: takeText(origin["session_id"], "payload.origin.session_id"), seq, hash: takeHash(origin["event_hash"], "payload.origin.event_hash"), without, declaredBy };
  }

  private checkAttributes(value: Json | undefined): void {
    const place = "payload.hypothesis_attributes";
    const attributes = takeObject(value, place);
    expect(Object.keys(attributes).length > 0, `${place} is empty`);
    for (const [id, values] of Object.entries(attributes)) {
      expect(this.universe.has(id), `${place} names an id outside of the universe`, "", id);
      expect(Object.keys(takeObject(values, place)).length > 0, `${place} says nothing of an id`, "", id);
    }
  }

  private eliminate(value: Json): Effect {
    const payload = takeMembers(value, "payload", "eliminated justification observation_id probe source_id", "first_sent_by");
    if (Object.hasOwn(payload, "first_sent_by")) takeText(payload["first_sent_by"], "payload.first_sent_by");
    const named = takeIds(payload["eliminated"], "payload.eliminated");
    takeOpaque(payload["justification"], "payload.justification");
    const source = takeText(payload["source_id"], "payload.source_id");
    const observation = takeText(payload["observation_id"], "payload.observation_id");
    if (payload["probe"] !== null) this.takeProbe(payload["probe"], source);
    this.occurOnce("observation", source, observation);
    if (this.policy["validate_hypotheses"] === true) for (const id of named) expect(this.universe.has(id), "id outside of the universe", "", id);
    return { outcome: null, eliminated: named.filter((id) => this.isAlive(id)), hasNotes: this.isList(payload) };
  }

  /** Whether it rules out without a probe, where the policy asks for observations: operators may, and it is marked. */
  private isList(payload: Members): boolean {
    return payload["probe"] === null && this.policy["eliminations"] === "observations";
  }

  private takeProbe(value: Json | undefined, source: string): void {
    expect(this.hasProvider, "a probe in a session without a provider");
    const place = "payload.probe";
    const probe = takeMembers(value, place, "probe_id response", "kit outcome_id reading seen_at");
    const id = takeText(probe["probe_id"], `${place}.probe_id`);
    expect(isSame(member(probe, "kit") ?? null, this.kit) && (this.kit !== null || !Object.hasOwn(probe, "kit")), `${place}.kit is not that of the declaration`);
    const outcome = member(probe, "outcome_id") ?? null;
    if (outcome !== null) takeText(outcome, `${place}.outcome_id`);
    if (Object.hasOwn(probe, "reading")) takeObject(probe["reading"], `${place}.reading`);
    if (Object.hasOwn(probe, "seen_at")) expect(STAMP.test(takeText(probe["seen_at"], `${place}.seen_at`)), `${place}.seen_at has another form`);
    const look = JSON.stringify([source, id]);
    expect(this.policy["looks"] !== "once" || !this.looks.has(look), "a second look of a source that may look once", "", look);
    this.looks.add(look);
  }

  private isAlive(id: string): boolean {
    const position = this.universe.get(id);
    return position !== undefined && this.survivors.has(position);
  }

  private eliminated(): number {
    return this.survivors.size - this.survivors.count;
  }

  private isBound(): boolean {
    return [...this.obligations.values()].some((each) => !each.left);
  }

  private enter(value: Json): Effect {
    const payload = takeMembers(value, "payload", "min_total_eliminations obligation_id");
    const threshold = takeNumber(payload["min_total_eliminations"], "payload.min_total_eliminations");
    const id = takeText(payload["obligation_id"], "payload.obligation_id");
    expect(!this.obligations.has(id), "obligation entered twice", "", id);
    this.obligations.set(id, { threshold, before: this.eliminated(), left: false });
    return { outcome: null, eliminated: [] };
  }

  private exit(value: Json): Effect {
    const payload = takeMembers(value, "payload", "context obligation_id");
    takeOpaque(payload["context"], "payload.context");
    const id = takeText(payload["obligation_id"], "payload.obligation_id");
    const obligation = this.obligations.get(id);
    expect(obligation !== undefined, "exit from an obligation that was not entered", "", id);
    if (obligation.left) return { outcome: { approved: false, reason: "obligation_not_active" }, eliminated: [] };
    if (this.eliminated() - obligation.before < obligation.threshold) return { outcome: { approved: false, reason: "below_threshold" }, eliminated: [] };
    obligation.left = true;
    return { outcome: { approved: true, reason: "approved" }, eliminated: [] };
  }

  private conclude(value: Json): Effect {
    const payload = takeMembers(value, "payload", "conclusion_id context", "tied_by");
    const tiedBy = Object.hasOwn(payload, "tied_by") ? takeHash(payload["tied_by"], "payload.tied_by") : null;
    takeOpaque(payload["context"], "payload.context");
    const id = takeText(payload["conclusion_id"], "payload.conclusion_id");
    if (this.isBound()) return { outcome: { accepted: false, reason: "obligation_active" }, eliminated: [] };
    const rule = this.policy["conclusions"];
    const mustSurvive = rule === "survivors" || rule === "decided" || (rule === "not_eliminated" && this.universe.has(id));
    if (mustSurvive && !this.isAlive(id)) return { outcome: { accepted: false, reason: "not_a_survivor" }, eliminated: [] };
    const isTied = tiedBy !== null && this.kit?.["content_hash"] === tiedBy;
    if (rule === "decided" && !isTied && this.survivors.count !== 1) return { outcome: { accepted: false, reason: "not_singleton" }, eliminated: [] };
    this.concluded.push(id);
    return { outcome: { accepted: true, reason: "accepted" }, eliminated: [] };
  }

  private terminate(value: Json): Effect {
    const context = takeOpaque(takeMembers(value, "payload", "context")["context"], "payload.context");
    const force = context !== null && member(context, "force") === true;
    const obstacle = this.findObstacle();
    if (obstacle !== null && !(force && this.policy["allow_force"] === true)) {
      return { outcome: { approved: false, reason: obstacle }, eliminated: [], hasNotes: force };
    }
    this.ended = true;
    return { outcome: { approved: true, reason: obstacle === null ? "approved" : "forced" }, eliminated: [] };
  }

  private findObstacle(): string | null {
    if (this.isBound()) return "obligation_active";
    if (this.survivors.count !== 1) return "not_singleton";
    const last = this.stabilityWindow === 0 ? [] : this.concluded.slice(-this.stabilityWindow);
    const stable = last.length === this.stabilityWindow && last.every((id) => id === last[0]);
    return stable ? null : "conclusion_unstable";
  }

  private update(value: Json): Effect {
    const payload = takeMembers(value, "payload", "", "agents labels lift_obligation owner severity title");
    expect(Object.keys(payload).length > 0, "an update that changes nothing");
    checkCase(payload, true);
    if (Object.hasOwn(payload, "lift_obligation")) {
      const lifted = this.obligations.get(takeText(payload["lift_obligation"], "payload.lift_obligation"));
      expect(lifted !== undefined && !lifted.left, "an obligation was lifted that is not active");
      lifted.left = true;
    }
    return { outcome: null, eliminated: [] };
  }
}
