// A space: its chain, its state map and what its decisions name. Its decisions are not made again: nothing here holds
// the rules of policies, and each verdict says so.

import { sha256 } from "@noble/hashes/sha2.js";
import { canonicalize, type Json } from "./canonical";
import { ENVELOPE, StreamCheck, type Entry } from "./chain";
import { expect, isSame, member, memberOr, takeList, takeMembers, takeObject, takeText, type Members } from "./fields";
import { encode, toHex } from "./merkle";

export const SPACE_PREFIX = "space:";
const VERBS =
  "CREATE_SPACE SET_MODE SET_GOVERNANCE PROPOSE WAKE WITHDRAW APPROVE REJECT EXPIRE START RECORD_OUTCOME MARK_IN_DOUBT PROPOSE_POLICY SETTLE_POLICY REGISTER_TOOL RETIRE_TOOL ISSUE_CAPABILITY REVOKE_CAPABILITY PUT_MEMORY PROMOTE_MEMORY DISPUTE_MEMORY OPEN_CASE CLOSE_CASE".split(
    " ",
  );

export class SpaceCheck extends StreamCheck {
  private readonly state = new Map<string, string>();
  private snapshot = "";
  private policyHash = "";
  private readonly undecided = new Map<string, number>();
  private readings = 0;

  protected override keyOwner(actor: Members | null): string {
    return JSON.stringify(actor === null ? null : [actor["kind"], actor["id"]]);
  }

  protected override nextDigestPoint(point: number): number {
    return point + 1000;
  }

  protected override check(entry: Entry): void {
    takeMembers(entry.members, "the entry", `${ENVELOPE} actor`, "idempotency_key state");
    expect(VERBS.includes(entry.verb), "verb that is not defined", "", entry.verb);
    expect((entry.verb === "CREATE_SPACE") === (this.size === 0), "creation at the wrong place", "", entry.verb);
    const payload = takeObject(entry.payload, "payload");
    const outcome = takeObject(entry.outcome, "outcome");
    if (this.size === 0) this.create(payload, outcome, entry.hash);
    else this.checkDecision(member(outcome, "decision"));
    if (entry.verb === "PROPOSE") {
      const proposal = takeObject(member(payload, "proposal"), "payload.proposal");
      this.occurOnce("proposal", takeText(member(proposal, "proposal_id"), "payload.proposal.proposal_id"));
    }
    this.change(memberOr(outcome, "changes", {}), entry.hash);
    this.leaveOpen(entry.verb, payload);
  }

  private create(payload: Members, outcome: Members, hash: string): void {
    expect(`${SPACE_PREFIX}${String(payload["space_id"])}` === this.streamId, "not the space of its stream", this.streamId, payload["space_id"]);
    this.set(member(payload, "policy"), "payload.policy");
    const set = memberOr(takeObject(memberOr(outcome, "changes", {}), "outcome.changes"), "set", {});
    expect(isSame(Object.fromEntries(this.state), set), "not the policy that the space was created with");
    this.policyHash = this.hashPolicy();
    this.snapshot = hash;
  }

  private set(value: Json | undefined, place: string): void {
    for (const [name, text] of Object.entries(takeObject(value, place))) this.state.set(name, takeText(text, `${place}.${name}`));
  }

  private checkDecision(value: Json | undefined): void {
    if (value === undefined || value === null) return;
    const decision = takeObject(value, "outcome.decision");
    expect(decision["policy_hash"] === this.policyHash, "not the hash of the policy before this entry", this.policyHash, decision["policy_hash"]);
    expect(decision["state_snapshot_id"] === this.snapshot, "not the snapshot before this entry", this.snapshot, decision["state_snapshot_id"]);
  }

  private change(value: Json, hash: string): void {
    const changes = takeMembers(value, "outcome.changes", "", "set unset");
    const set = takeObject(memberOr(changes, "set", {}), "outcome.changes.set");
    this.set(set, "outcome.changes.set");
    const unset = takeList(memberOr(changes, "unset", []), "outcome.changes.unset").map((each) => takeText(each, "outcome.changes.unset"));
    for (const name of unset) expect(this.state.delete(name), "a key that is unset and is not in the state", "", name);
    if (Object.keys(changes).length === 0) return;
    this.snapshot = hash;
    if ([...Object.keys(set), ...unset].some(isOfPolicy)) this.policyHash = this.hashPolicy();
  }

  private hashPolicy(): string {
    const pairs = [...this.state].filter(([name]) => isOfPolicy(name));
    return toHex(sha256(encode(`cmbs/1/policy\0${canonicalize(Object.fromEntries(pairs))}`)));
  }

  private leaveOpen(verb: string, payload: Members): void {
    this.undecided.set(verb, (this.undecided.get(verb) ?? 0) + 1);
    this.readings += takeList(memberOr(payload, "belief", []), "payload.belief").length;
    this.notChecked.length = 0;
    const count = [...this.undecided.values()].reduce((sum, each) => sum + each, 0);
    const verbs = [...this.undecided].sort().map(([name, times]) => `${times} ${name}`);
    this.notChecked.push(`whether the outcomes of ${count} entries (${verbs.join(", ")}) follow from what was asked and from the policy, and whether readings of sessions are missing: cmbs verify decides them again`);
    if (this.readings > 0) this.notChecked.push(`what ${this.readings} belief readings say of sessions: cmbs verify and the offline verifier compare them`);
  }
}

function isOfPolicy(name: string): boolean {
  return name.startsWith("policy.") || name.startsWith("constraint.");
}
