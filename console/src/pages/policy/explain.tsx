// Explain a call: what would be decided now about one that is written here, or why one that was proposed was decided so.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, api, hasKey, identity, list, may, read } from "../../api/client";
import { Icon } from "../../ui/icons";
import { Failure, Message, Panel, useLoad } from "../../ui/parts";
import { nameOf } from "../actions/gates";
import type { Case, Explanation, PolicySource, Proposal } from "../actions/model";
import { explain, listCases, listProposals, listSpeakers, nameReference, tellNext } from "../actions/model";
import { Lines } from "../actions/trace";

export function Verdict({ of }: { of: string }): JSX.Element {
  return <span class={`chip ${of === "allow" ? "holds" : of === "deny" ? "refused" : "owed"}`}><Icon of={of === "allow" ? "check" : of === "deny" ? "refused" : "wait"} />{of}</span>;
}

interface Known {
  tools: string[];
  tokens: Schemas["CapabilityResponse"][];
  cases: Case[];
  proposals: Proposal[];
}

async function readKnown(space: string): Promise<Known> {
  const path = { space_id: space };
  const askTools = (cursor?: string) =>
    api.GET("/v1/spaces/{space_id}/tools", { params: { path, query: { cursor } } });
  const askTokens = (cursor?: string) =>
    api.GET("/v1/spaces/{space_id}/capabilities", { params: { path, query: { cursor } } });
  const [tools, tokens, cases, proposals] = await Promise.all([
    list(askTools, (page) => page.tools, 500),
    list(askTokens, (page) => page.capabilities, 500),
    listCases(space, { status: "open" }, 200),
    listProposals(space, { order: "newest", limit: 50 }, 50),
  ]);
  return { tools: tools.map((each) => each.tool_id), tokens: tokens.filter((each) => !each.revoked), cases, proposals };
}

type Way = "write" | "recall";

export function ExplainPanel({ space, policy }: { space: string; policy: PolicySource }): JSX.Element {
  const known = useLoad(() => readKnown(space), [space]);
  const [way, setWay] = useState<Way>("write");
  const [answer, setAnswer] = useState<Explanation | null>(null);
  const [error, setError] = useState<unknown>(null);
  const ask = (asked: Promise<Explanation>): void => {
    setError(null);
    asked.then(setAnswer, (problem: unknown) => {
      setAnswer(null);
      setError(problem);
    });
  };
  const choose = (next: Way): void => {
    setWay(next);
    setAnswer(null);
    setError(null);
  };
  return (
    <Panel title="Explain a call" note={
      <span class="tabs" role="group" aria-label="Which call">
        <button type="button" aria-pressed={way === "write"} onClick={() => choose("write")}>Write one</button>
        <button type="button" aria-pressed={way === "recall"} onClick={() => choose("recall")}>One that was proposed</button>
      </span>
    }>
      {known.error !== null && <Failure error={known.error} retry={known.again} />}
      {known.value && way === "write" && <WrittenCall space={space} known={known.value} ask={ask} />}
      {known.value && way === "recall" && <ProposedCall space={space} proposals={known.value.proposals} ask={ask} />}
      {error !== null && <Failure error={error} />}
      {answer && <Answer answer={answer} policy={policy} />}
      <p class="note pad">By the policy in force, not by the draft. Nothing is recorded.</p>
    </Panel>
  );
}

function parseArguments(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("The arguments are not JSON, as in {\"service\": \"orders\"}");
  }
}

function WrittenCall({ space, known, ask }: { space: string; known: Known; ask: (asked: Promise<Explanation>) => void }): JSX.Element {
  const [tool, setTool] = useState(known.tools[0] ?? "");
  const [text, setText] = useState("{}");
  const [tokenId, setTokenId] = useState(known.tokens[0]?.token_id ?? "");
  const [caseId, setCaseId] = useState(known.cases[0]?.case_id ?? "");
  if (!may("spaces:propose", space)) return <p class="note pad">This key may not propose calls; look at one that was proposed.</p>;
  const token = known.tokens.find((each) => each.token_id === tokenId);
  const send = async (): Promise<Explanation> => {
    const path = { space_id: space };
    const now = { path, query: { fields: "state_snapshot_id" } };
    const { state_snapshot_id } = await read(api.GET("/v1/spaces/{space_id}", { params: now }));
    // Without keys the server believes who we say we are, so that the call can be asked for as its agent.
    const headers = !hasKey() && token ? { "x-cmbs-actor": `agent:${token.agent_id}` } : {};
    const candidate: Schemas["ToolCallRequest"] = {
      type: "tool_call",
      tool_id: tool.trim(),
      args: parseArguments(text),
      capability_token_id: tokenId,
      idempotency_key: crypto.randomUUID(),
    };
    const provenance = { source: token?.agent_id ?? "console", timestamp: new Date().toISOString(), inputs: [], permissions: [] };
    const proposal_id = crypto.randomUUID();
    const case_id = caseId || undefined;
    const body = { proposal_id, state_snapshot_id, provenance, candidates: [candidate], case_id };
    return read(api.POST("/v1/spaces/{space_id}/explain", { params: { path }, headers, body }));
  };
  return (
    <form class="pad recorder explain" onSubmit={(event) => { event.preventDefault(); ask(send()); }}>
      <label>Tool<input class="field mono" required list="tools-of-the-space" value={tool} onInput={(event) => setTool(event.currentTarget.value)} /></label>
      <datalist id="tools-of-the-space">{known.tools.map((each) => <option key={each} value={each} />)}</datalist>
      <label>Token<select class="field" value={tokenId} onChange={(event) => setTokenId(event.currentTarget.value)}>{known.tokens.map((each) => <option key={each.token_id} value={each.token_id}>{each.token_id} of {each.agent_id}</option>)}</select></label>
      <label>Case<select class="field" value={caseId} onChange={(event) => setCaseId(event.currentTarget.value)}><option value="">no case</option>{known.cases.map((each) => <option key={each.case_id} value={each.case_id}>{each.case_id}</option>)}</select></label>
      <label>Arguments<textarea class="field mono" rows={1} value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
      <p class="row whole"><button type="submit" class="btn">Explain</button><span class="f3">as {hasKey() || !token ? `${identity.value?.kind ?? ""} ${identity.value?.id ?? ""}` : `agent ${token.agent_id}`}</span></p>
    </form>
  );
}

function ProposedCall({ space, proposals, ask }: { space: string; proposals: Proposal[]; ask: (asked: Promise<Explanation>) => void }): JSX.Element {
  const [chosen, setChosen] = useState(proposals[0]?.proposal_id ?? "");
  if (proposals.length === 0) return <p class="note pad">Nothing was proposed in this space yet.</p>;
  return (
    <form class="pad row" onSubmit={(event) => { event.preventDefault(); ask(explain(space, chosen)); }}>
      <label class="grow"><span class="sr">Proposal</span><select class="field" value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>{proposals.map((each) => <option key={each.proposal_id} value={each.proposal_id}>{nameOf(each)} by {each.actor.id}, {each.status}, entry {each.seq}</option>)}</select></label>
      <button type="submit" class="btn">Explain</button>
    </form>
  );
}

function Answer({ answer, policy }: { answer: Explanation; policy: PolicySource }): JSX.Element {
  const { decision, flip } = answer;
  const source = policy.policy_hash === decision.policy_hash ? (policy.source?.text ?? null) : null;
  const changes = flip.changes?.filter((each) => typeof each.to === "string") ?? [];
  return (
    <div class="body explained" role="status" aria-label="Explanation">
      <p class="row"><Verdict of={decision.verdict} /><span class="f2">{decision.stage ? `decided at the stage ${decision.stage}` : "every stage passes"} <span class="mono f3">{decision.reason_code}</span></span></p>
      {answer.refusals?.map((each, n) => <p key={n} class="small wrap"><Message text={each.message} />. <span class="f2"><Message text={tellNext(each.next)} /></span></p>)}
      {listSpeakers(answer).map((each) => <Lines key={each.key} speaker={each} source={source} />)}
      {changes.length > 0 && flip.verdict && (
        <p class="small">It would be <b>{flip.verdict}</b> if {changes.map((each, n) => <span key={each.reference}>{n > 0 && " and "}<span class="mono">{nameReference(each.reference)}</span> were <b class="mono">{each.to}</b>, now {each.now}</span>)}.</p>
      )}
    </div>
  );
}
