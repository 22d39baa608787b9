// What the pages of actions read of a space, as the API has it.

import { type Answered, type Schemas, api, find, identity, list, may, read } from "../../api/client";
import { StepRefused } from "../../api/errors";
import type { Feed } from "../../api/live";
import type { paths } from "../../api/schema";
import { countSurvivors } from "../../model/load";

export type Approval = Schemas["ApprovalItem"];
export type Case = Schemas["CaseResponse"];
export type Execution = Schemas["ExecutionResponse"];
export type Explanation = Schemas["ExplainResponse"];
export type PolicyChange = Schemas["PolicyChangeResponse"];
/** The file is left out where the policy was written by its keys. */
export type PolicySource = Schemas["PolicyPage"];
export type Proposal = Schemas["ProposalResponse"];
export type Speaker = Schemas["Speaker"];
/** One thing that waits for a person, and its record where it has one. */
export type Waiting = Schemas["InboxItem"];

/** What is written to any space. */
export const EVERY_SPACE: Feed = { every: { kind: ["space"] } };

export async function listSpaces(): Promise<string[]> {
  const ask = (cursor?: string) => api.GET("/v1/spaces", { params: { query: { cursor } } });
  return (await list(ask, (page) => page.spaces, 200)).map((each) => each.space_id);
}

type CasesQuery = NonNullable<paths["/v1/spaces/{space_id}/cases"]["get"]["parameters"]["query"]>;
type ProposalsQuery = NonNullable<paths["/v1/spaces/{space_id}/proposals"]["get"]["parameters"]["query"]>;

export async function listCases(space_id: string, query: CasesQuery, most: number): Promise<Case[]> {
  const path = { space_id };
  const ask = (cursor?: string) =>
    api.GET("/v1/spaces/{space_id}/cases", { params: { path, query: { ...query, cursor } } });
  return list(ask, (page) => page.cases, most);
}

export async function listProposals(space_id: string, query: ProposalsQuery, most: number): Promise<Proposal[]> {
  const path = { space_id };
  const ask = (cursor?: string) =>
    api.GET("/v1/spaces/{space_id}/proposals", { params: { path, query: { ...query, cursor } } });
  return list(ask, (page) => page.proposals, most);
}

/** The spaces that a case was admitted to. */
export async function findSpacesOf(case_id: string): Promise<string[]> {
  const ask = (cursor?: string) => api.GET("/v1/spaces", { params: { query: { case_id, cursor } } });
  return (await list(ask, (page) => page.spaces, 200)).map((each) => each.space_id);
}

/** The policy file; where there is no such space, the error says so. */
export async function readPolicySource(space_id: string): Promise<PolicySource> {
  return read(api.GET("/v1/spaces/{space_id}/policy", { params: { path: { space_id }, query: { limit: 1 } } }));
}

/** Every rule and setting of the policy in force, by its key. */
export async function readPolicyPairs(space_id: string): Promise<Record<string, string>> {
  const ask = (cursor?: string) => api.GET("/v1/spaces/{space_id}/policy", { params: { path: { space_id }, query: { cursor } } });
  return Object.fromEntries(await list(ask, (page) => Object.entries(page.pairs), Infinity));
}

export async function readPolicyChange(space_id: string, change_id: string): Promise<PolicyChange> {
  const params = { path: { space_id, change_id } };
  return read(api.GET("/v1/spaces/{space_id}/policy/changes/{change_id}", { params }));
}

export async function explain(space_id: string, proposal_id: string): Promise<Explanation> {
  const params = { path: { space_id, proposal_id } };
  return read(api.GET("/v1/spaces/{space_id}/proposals/{proposal_id}/explain", { params }));
}

/** What would be decided now of a call that was proposed, for the one who proposed it. */
export async function explainNow(space_id: string, proposal_id: string): Promise<Explanation> {
  const params = { path: { space_id, proposal_id }, query: { now: "true" } } as const;
  return read(api.GET("/v1/spaces/{space_id}/proposals/{proposal_id}/explain", { params }));
}

/** What speaks for and against a call: the rules of the policy, with what was found. */
export function listSpeakers(explanation: Explanation): Speaker[] {
  return explanation.because.flatMap((each) => each.speakers ?? []);
}

/** What a write came to, with its step in the log. */
type Settled = Schemas["StepResponse"] | { step: Schemas["StepResponse"] };

/** Wait for a write; an error says what the space did not grant. */
export async function settle(asked: Promise<Answered<Settled>>): Promise<void> {
  const answer = await read(asked);
  const step = "step" in answer ? answer.step : answer;
  if (step.granted) return;
  throw new StepRefused(step.reason_code ?? "REFUSED", step.refusal?.message ?? "the space refused it", step.refusal?.next ?? null);
}

/** Headers of a write: sent again, it is not done twice. */
export function onlyOnce(): { "Idempotency-Key": string } {
  return { "Idempotency-Key": crypto.randomUUID() };
}

export async function withdraw(space_id: string, proposal_id: string, reason: string): Promise<void> {
  const params = { path: { space_id, proposal_id }, header: onlyOnce() };
  const body = { reason: reason.trim() || "withdrawn in the console" };
  await settle(api.POST("/v1/spaces/{space_id}/proposals/{proposal_id}/withdraw", { params, body }));
}

/** Report what came of a call in doubt; an error says why the space did not take it. */
export async function reportCall(space_id: string, call_id: string, body: Schemas["OutcomeRequest"]): Promise<void> {
  const params = { path: { space_id, call_id }, header: onlyOnce() };
  const call = await read(api.POST("/v1/spaces/{space_id}/calls/{call_id}/outcome", { params, body }));
  if (call.status === "in_doubt") throw new Error(call.refusal?.message ?? "the space did not take the outcome");
}

/** A reference as it is read: the belief of the case, without the id of its session. */
export function nameReference(reference: string): string {
  return reference.replace(/^\$belief\.[^.]+\./, "belief ");
}

/** What to do about a refusal, without what names a session by its id; the page shows that by itself. */
export function tellNext(next: string): string {
  return next.split("; ").filter((each) => !each.includes("`$belief.") && !each.startsWith("once")).join("; ");
}

const MOST_WAITING = 500;

/** What this key could settle now, in all spaces that it may act in. */
export async function readInbox(): Promise<Waiting[]> {
  if (!may("spaces:read")) return [];
  const ask = (cursor?: string) => api.GET("/v1/inbox", { params: { query: { cursor } } });
  return list(ask, (page) => page.waiting, MOST_WAITING);
}

/** What something that waited has become. */
export interface Settlement {
  /** As in "approved by ann". */
  said: string;
  /** What came of it; null where nothing does. */
  outcome: string | null;
}

const CAME_OF: Partial<Record<Proposal["status"], string>> = {
  ready: "The call waits to be started.",
  running: "The call is running.",
  committed: "It ran, and its changes are in the state.",
  failed: "It failed.",
  parked: "It waits again: something else is not met.",
  asked: "It asks for another approval.",
  denied: "It was decided again, and is denied.",
};

/** What became of a thing that waits no more. */
export async function readSettlement({ space_id, kind, id, approval }: Waiting): Promise<Settlement> {
  if (kind === "approval" && approval) {
    const path = { space_id, approval_id: id };
    const now = await read(api.GET("/v1/spaces/{space_id}/approvals/{approval_id}", { params: { path } }));
    const by = now.approver === null ? "" : ` by ${now.approver.id === identity.value?.id ? `you (${now.approver.id})` : now.approver.id}`;
    if (now.status !== "approved") return { said: `${now.status}${by}`, outcome: null };
    const proposal = await readProposal(space_id, approval.proposal_id);
    return { said: `approved${by}`, outcome: CAME_OF[proposal.status] ?? `It is ${proposal.status}.` };
  }
  if (kind === "execution_in_doubt") {
    const params = { path: { space_id, execution_id: id } };
    const now = await read(api.GET("/v1/spaces/{space_id}/executions/{execution_id}", { params }));
    return { said: now.status.replaceAll("_", " "), outcome: now.error };
  }
  if (kind === "policy_change") {
    const now = await readPolicyChange(space_id, id);
    return { said: `${now.status}${now.settled_by === null ? "" : ` by ${now.settled_by.id}`}`, outcome: null };
  }
  const now = await read(api.GET("/v1/spaces/{space_id}", { params: { path: { space_id } } }));
  const outcome = kind === "observe_mode" ? `The space is in the mode ${now.mode}.` : `A change of policy takes ${now.operators_needed}.`;
  return { said: "settled", outcome };
}

export async function readProposal(space_id: string, proposal_id: string): Promise<Proposal> {
  const params = { path: { space_id, proposal_id } };
  return read(api.GET("/v1/spaces/{space_id}/proposals/{proposal_id}", { params }));
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

export interface Asked {
  session: string | null;
  /** The belief that the decision read, by its event; null where the rule read none. */
  then: { seq: number; left: number } | null;
  now: { seq: number; left: number; some: string[] } | null;
  changes: StateChange[];
  /** Whether the call writes outside of the space, as its registration says. */
  writes: boolean | null;
  /** Why a person is asked, in the words of the rule; null where it gives none. */
  because: string | null;
  /** The last call of the same tool that was approved; null where there was none. */
  last: Approval | null;
  /** What the case calls itself; null where there is none, or this key may not read it. */
  about: Schemas["SessionCase"] | null;
}

async function findLastApproved(space_id: string, tool: string | null): Promise<Approval | null> {
  if (tool === null) return null;
  const query = { tool, status: "approved", order: "newest", limit: 1 } as const;
  const page = await read(api.GET("/v1/spaces/{space_id}/approvals", { params: { path: { space_id }, query } }));
  return page.approvals[0] ?? null;
}

async function findAbout(session_id: string | null): Promise<Schemas["SessionCase"] | null> {
  if (session_id === null || !may("belief:read", session_id)) return null;
  return find(api.GET("/v1/sessions/{session_id}/case", { params: { path: { session_id } } }));
}

async function findTool(space_id: string, tool_id: string): Promise<Schemas["ToolResponse"] | null> {
  return find(api.GET("/v1/spaces/{space_id}/tools/{tool_id}", { params: { path: { space_id, tool_id } } }));
}

/** The first page of the state of a space. */
export async function readValues(space_id: string): Promise<Record<string, string>> {
  return (await read(api.GET("/v1/spaces/{space_id}/state", { params: { path: { space_id } } }))).values;
}

/** Everything that a person needs to settle an approval: what would change, and what was believed. */
export async function readAsked(space_id: string, approval: Approval): Promise<Asked> {
  const { proposal_id, tool_id } = approval;
  const [proposal, tool, last, about] = await Promise.all([
    readProposal(space_id, proposal_id),
    tool_id === null ? null : findTool(space_id, tool_id),
    findLastApproved(space_id, tool_id),
    findAbout(approval.case_id),
  ]);
  const candidate = proposal.candidates[approval.candidate];
  const delta = candidate?.type === "state_delta" ? candidate : null;
  const facts = tool !== null && (tool.kind !== "caller" || tool.caller_facts) ? tool.facts : {};
  const keys = [...Object.keys(delta?.set ?? {}), ...(delta?.unset ?? []), ...Object.keys(facts)];
  const values = keys.length > 0 ? await readValues(space_id) : {};
  const change = (key: string, after: string | null): StateChange => ({ key, before: values[key] ?? null, after });
  const changes = [
    ...Object.entries(delta?.set ?? {}).map(([key, after]) => change(key, after)),
    ...(delta?.unset ?? []).map((key) => change(key, null)),
    ...Object.entries(facts).map(([key, from]) => ({ ...change(key, null), from })),
  ];
  const because = proposal.decision.candidates.find((each) => each.candidate === approval.candidate)?.reason ?? null;
  return { ...(await readBelief(proposal)), changes, writes: tool?.writes ?? null, because, last, about };
}

async function readBelief(proposal: Proposal): Promise<Pick<Asked, "session" | "then" | "now">> {
  if (!proposal.case_id || !may("belief:read")) return { session: null, then: null, now: null };
  const session = proposal.case_id;
  const path = { session_id: session };
  const page = await read(api.GET("/v1/sessions/{session_id}/survivors", { params: { path, query: { limit: 5 } } }));
  const seen = proposal.decision.trace?.map((step) => /^at audit head (\d+) /.exec(step.note ?? "")?.[1]).find((seq) => seq !== undefined);
  const event = page.audit_head_event_id;
  const query = { from: event, to: event, fields: "to_seq" };
  const head = await read(api.GET("/v1/sessions/{session_id}/diff", { params: { path, query } }));
  const now = { seq: head.to_seq, left: page.n_survivors, some: page.survivors };
  if (seen === undefined) return { session, then: null, now };
  return { session, then: { seq: Number(seen), left: await countSurvivors(session, Number(seen)) }, now };
}
