// What the pages of actions read of a space, as the API has it.

import { find, get, list, may } from "../../api/client";

export interface Actor {
  kind: string;
  id: string;
}

export interface Case {
  case_id: string;
  status: string;
  session_id: string;
  agents: string[];
  attributes: Record<string, unknown>;
}

export interface Step {
  stage: string;
  passed: boolean;
  key?: string;
  at?: string;
  op?: string;
  reference?: string;
  found?: string;
  note?: string;
}

export interface Decision {
  verdict: string;
  reason_code: string;
  policy_hash: string;
  stage?: string;
  failure?: string;
  trace?: Step[];
  candidates: { candidate: number; verdict: string; reason_code: string; stage?: string; reason?: string; waits_for?: string[]; matched?: string[] }[];
}

export interface Candidate {
  type: string;
  tool_id?: string;
  args?: Record<string, unknown>;
  set?: Record<string, string>;
  unset?: string[];
}

export interface Proposal {
  proposal_id: string;
  status: string;
  decision: Decision;
  actor: Actor;
  candidates: Candidate[];
  execution_ids: string[];
  waits_for: string[];
  parked_until: string | null;
  case_id: string | null;
  seq: number;
  refusals?: { code: string; message: string; next: string }[];
}

export interface Approval {
  approval_id: string;
  status: string;
  proposal_id: string;
  candidate: number;
  tool_id: string | null;
  args: unknown;
  args_hash: string;
  constraints: string[];
  policy_hash: string;
  tool_hash: string | null;
  proposer: Actor;
  expires_at: string;
}

export interface Execution {
  execution_id: string;
  status: string;
  proposal_id: string;
  agent_id: string;
  tool_id: string;
  args: unknown;
  error: string | null;
  started_seq: number;
}

export interface PolicyChange {
  change_id: string;
  status: string;
  proposer: Actor;
  set: Record<string, string>;
  unset: string[];
  reason: string;
  /** Its file; null where it was written by its keys, or waits no more. */
  source: { media_type: string; text: string } | null;
}

interface Origin {
  line: number;
  column: number;
  rule: string;
  condition?: string;
}

export interface Speaker {
  key: string;
  reason: string | null;
  steps: Step[];
  origin?: Origin;
  origins?: Record<string, Origin>;
}

export interface Explanation {
  decision: Decision;
  because: { candidate: number; verdict: string; reason_code: string; speakers: Speaker[] }[];
  flip: { status: string; changes?: { reference: string; now: string; to: string }[]; verdict?: string } | null;
  refusals?: { code: string; message: string; next: string }[];
}

export interface PolicySource {
  policy_hash: string;
  policy_version: number;
  source: { media_type: string; text: string } | null;
}

/** The stream of what is written to any space. */
export const EVERY_SPACE = "v1/events?kind=space";

export function pathOf(space: string): string {
  return `v1/spaces/${encodeURIComponent(space)}`;
}

export async function listSpaces(): Promise<string[]> {
  return (await list<{ space_id: string }>("v1/spaces", "spaces", {}, 200)).map((each) => each.space_id);
}

/** The cases of a session, with their spaces. */
export async function findCases(session: string): Promise<{ space: string; case: Case }[]> {
  const found: { space: string; case: Case }[] = [];
  for (const space of await listSpaces()) {
    for (const each of await list<Case>(`${pathOf(space)}/cases`, "cases", { session_id: session }, 500)) found.push({ space, case: each });
  }
  return found;
}

export async function readPolicySource(space: string): Promise<PolicySource | null> {
  return find<PolicySource>(`${pathOf(space)}/policy`, { limit: 1 });
}

export async function readPolicyChange(space: string, change: string): Promise<PolicyChange> {
  return get<PolicyChange>(`${pathOf(space)}/policy/changes/${encodeURIComponent(change)}`);
}

export async function explain(space: string, proposal: string): Promise<Explanation> {
  return get<Explanation>(`${pathOf(space)}/proposals/${encodeURIComponent(proposal)}/explain`);
}

/** A reference as it is read: the belief of the case, without the id of its session. */
export function nameReference(reference: string): string {
  return reference.replace(/^\$belief\.[^.]+\./, "belief ");
}

/** What to do about a refusal, without what names a session by its id; the page shows that by itself. */
export function tellNext(next: string): string {
  return next.split("; ").filter((each) => !each.includes("`$belief.") && !each.startsWith("once")).join("; ");
}

export type WaitKind = "approval" | "execution_in_doubt" | "policy_change" | "observe_mode" | "governance";

/** One thing that waits for a person, and its record where it has one. */
export interface Waiting {
  space_id: string;
  kind: WaitKind;
  id: string;
  seq: number;
  asked_by: string;
  case_id: string | null;
  case_title: string | null;
  expires_at: string | null;
  approval?: Approval;
  execution?: Execution;
  policy_change?: PolicyChange;
}

const MOST_WAITING = 500;

/** What this key could settle now: of one space, or of all that it may act in. */
export async function readInbox(space?: string): Promise<Waiting[]> {
  return may("spaces:read") ? list<Waiting>("v1/inbox", "waiting", { space_id: space }, MOST_WAITING) : [];
}

/** What a call or a patch would change in the state, as far as it is on record. */
export interface StateChange {
  key: string;
  before: string | null;
  /** The new value; null where the key is taken away. */
  after: string | null;
  /** Where the value is read from the result of the call, which is not known yet. */
  from?: string;
}

interface Tool {
  writes: boolean;
  facts: Record<string, string>;
  kind: string;
  caller_facts: boolean;
}

export interface Asked {
  session: string | null;
  /** The belief that the decision read, by its event; null where the rule read none. */
  then: { seq: number; left: number } | null;
  now: { seq: number; left: number; some: string[] } | null;
  changes: StateChange[];
  /** Whether the call writes outside of the space, as its registration says. */
  writes: boolean | null;
}

/** Everything that a person needs to settle an approval: what would change, and what was believed. */
export async function readAsked(space: string, approval: Approval): Promise<Asked> {
  const proposal = await get<Proposal>(`${pathOf(space)}/proposals/${encodeURIComponent(approval.proposal_id)}`);
  const candidate = proposal.candidates[approval.candidate];
  const tool = approval.tool_id === null ? null : await find<Tool>(`${pathOf(space)}/tools/${encodeURIComponent(approval.tool_id)}`);
  const keepsFacts = tool !== null && (tool.kind !== "caller" || tool.caller_facts);
  const keys = [...Object.keys(candidate?.set ?? {}), ...(candidate?.unset ?? []), ...(keepsFacts ? Object.keys(tool.facts) : [])];
  const values = keys.length > 0 ? (await get<{ values: Record<string, string> }>(`${pathOf(space)}/state`)).values : {};
  const changes = [
    ...Object.entries(candidate?.set ?? {}).map(([key, after]): StateChange => ({ key, before: values[key] ?? null, after })),
    ...(candidate?.unset ?? []).map((key): StateChange => ({ key, before: values[key] ?? null, after: null })),
    ...(keepsFacts ? Object.entries(tool.facts).map(([key, from]): StateChange => ({ key, before: values[key] ?? null, after: null, from })) : []),
  ];
  return { ...(await readBelief(space, proposal)), changes, writes: tool?.writes ?? null };
}

async function readBelief(space: string, proposal: Proposal): Promise<Pick<Asked, "session" | "then" | "now">> {
  if (!proposal.case_id || !may("belief:read")) return { session: null, then: null, now: null };
  const { session_id: session } = await get<Case>(`${pathOf(space)}/cases/${encodeURIComponent(proposal.case_id)}`, { fields: "session_id" });
  const path = `v1/sessions/${encodeURIComponent(session)}`;
  const page = await get<{ survivors: string[]; n_survivors: number; audit_head_event_id: string }>(`${path}/survivors`, { limit: 5 });
  const seen = proposal.decision.trace?.map((step) => /^at audit head (\d+) /.exec(step.note ?? "")?.[1]).find((seq) => seq !== undefined);
  const head = await get<{ to_seq: number }>(`${path}/diff`, { from: page.audit_head_event_id, to: page.audit_head_event_id, fields: "to_seq" });
  const now = { seq: head.to_seq, left: page.n_survivors, some: page.survivors };
  if (seen === undefined) return { session, then: null, now };
  const past = await get<{ n_survivors: number }>(path, { at: seen, fields: "n_survivors" });
  return { session, then: { seq: Number(seen), left: past.n_survivors }, now };
}
