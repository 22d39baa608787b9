// What the pages of actions read of a space, as the API has it.

import { find, get, list } from "../../api/client";

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
    for (const each of await list<Case>(`${pathOf(space)}/cases`, "cases", {}, 500)) {
      if (each.session_id === session) found.push({ space, case: each });
    }
  }
  return found;
}

export async function readPolicySource(space: string): Promise<PolicySource | null> {
  return find<PolicySource>(`${pathOf(space)}/policy`, { limit: 1 });
}

export async function explain(space: string, proposal: string): Promise<Explanation> {
  return get<Explanation>(`${pathOf(space)}/proposals/${encodeURIComponent(proposal)}/explain`);
}

/** What one waiting thing is: exactly one of the three. */
export interface Waiting {
  space: string;
  approval?: Approval;
  execution?: Execution;
  change?: PolicyChange;
}

export async function findWaiting(spaces: string[]): Promise<Waiting[]> {
  const waiting: Waiting[] = [];
  for (const space of spaces) {
    const path = pathOf(space);
    const [approvals, executions, changes] = await Promise.all([
      list<Approval>(`${path}/approvals`, "approvals", { status: "pending" }, 200),
      list<Execution>(`${path}/executions`, "executions", { status: "in_doubt" }, 200),
      list<PolicyChange>(`${path}/policy/changes`, "changes", {}, 200).catch(() => []),
    ]);
    waiting.push(...approvals.map((approval) => ({ space, approval })));
    waiting.push(...executions.map((execution) => ({ space, execution })));
    waiting.push(...changes.filter((each) => each.status === "pending").map((change) => ({ space, change })));
  }
  return waiting;
}
