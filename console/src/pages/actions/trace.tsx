// A proposal, stage by stage; what failed opens on the lines of the policy file.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, mayWithdraw } from "../../api/client";
import { clock, short } from "../../ui/format";
import { Arguments, Exact, GlyphNote, listTexts } from "../../ui/exact";
import { Icon } from "../../ui/icons";
import { Failure, Message, Panel, Skeleton, useLoad } from "../../ui/parts";
import { nameOf, STATUS } from "./gates";
import type { Explanation, PolicySource, Proposal, Speaker } from "./model";
import { explain, listSpeakers, nameReference, readPolicySource, withdraw } from "./model";

const STAGES = ["shape", "freshness", "authority", "tool", "capability", "constraints", "conflicts", "invariants"];
const SAYS: Record<string, string> = {
  shape: "the proposal is well formed",
  freshness: "nothing that it depends on has changed since",
  authority: "the proposer may propose this",
  tool: "the arguments fit the schema of the tool",
  capability: "a token covers it",
  constraints: "the rules of the policy",
  conflicts: "no exclusive goals",
  invariants: "the state stays sound",
};

export function Trace({ space, proposal, stale, changed }: { space: string; proposal: Proposal; stale: boolean; changed: () => void }): JSX.Element {
  const loaded = useLoad(async () => {
    const [explanation, policy] = await Promise.all([explain(space, proposal.proposal_id), readPolicySource(space).catch(() => null)]);
    return { explanation, policy };
  }, [space, proposal.proposal_id, proposal.status]);
  const [error, setError] = useState<unknown>(null);
  const [icon, tone] = STATUS[proposal.status] ?? ["wait", ""];
  const waits = proposal.status === "parked" || proposal.status === "asked";
  const takeBack = (): void => void withdraw(space, proposal.proposal_id, "").then(changed, setError);
  return (
    <Panel
      title={<><span class="mono wrap"><Exact text={nameOf(proposal)} /></span> {proposal.status === "parked" ? "waits" : proposal.status}</>}
      label="Proposal"
      icon={icon}
      tone={tone}
      note={<span>{proposal.proposal_id} by {proposal.actor.id}, entry {proposal.seq}</span>}
      actions={waits && mayWithdraw(space, proposal.actor) && <button type="button" class="btn" disabled={stale} onClick={takeBack}>Withdraw</button>}
    >
      {error !== null && <Failure error={error} />}
      <Flow proposal={proposal} />
      <div class="pad">{proposal.candidates.map((each, at) => <Candidate key={at} one={each} />)}</div>
      {loaded.error !== null && <Failure error={loaded.error} retry={loaded.again} />}
      {loaded.loading && !loaded.value && <Skeleton height={220} />}
      {loaded.value && <Stages proposal={proposal} explanation={loaded.value.explanation} policy={loaded.value.policy} />}
    </Panel>
  );
}

function Candidate({ one }: { one: Proposal["candidates"][number] }): JSX.Element {
  const isCall = one.type === "tool_call";
  const value = isCall ? (one.args ?? {}) : { set: one.set, unset: one.unset };
  return (
    <>
      <p class="mono strong wrap"><Exact text={isCall ? one.tool_id : "state"} /></p>
      <GlyphNote texts={[isCall ? one.tool_id : "", ...listTexts(value)]} />
      <Arguments label="Arguments" value={value} />
    </>
  );
}

function Flow({ proposal }: { proposal: Proposal }): JSX.Element {
  const { verdict } = proposal.decision;
  const ran = ["ready", "running", "committed", "failed"].includes(proposal.status);
  const steps: [string, string, string][] = [
    ["Proposed", "done", `entry ${proposal.seq}`],
    [`Validated: ${verdict === "defer" && proposal.status === "asked" ? "ask" : verdict}`, verdict === "allow" ? "done" : verdict === "deny" ? "bad" : "now", proposal.decision.reason_code],
    ["Executed", ["ready", "running"].includes(proposal.status) ? "now" : ran ? "done" : "", proposal.status === "ready" ? "waits to be started" : proposal.execution_ids.length > 0 ? `${proposal.execution_ids.length} started` : "not yet"],
    ["Committed", proposal.status === "committed" ? "done" : "", proposal.status === "committed" ? "in the state" : "not yet"],
  ];
  return (
    <ol class="flow">
      {steps.map(([title, state, note]) => <li key={title} class={state}><b class={state === "now" ? "owed" : state === "bad" ? "refused" : state === "" ? "f3" : ""}>{title}</b><div class="f3">{note}</div></li>)}
    </ol>
  );
}

function Stages({ proposal, explanation, policy }: { proposal: Proposal; explanation: Explanation; policy: PolicySource | null }): JSX.Element {
  const trace = explanation.decision.trace ?? [];
  const failed = explanation.decision.stage ?? null;
  const speakers = listSpeakers(explanation);
  // What its proposer was told; of one that waits no more, what explains it.
  const refusal = proposal.refusals?.[0] ?? explanation.refusals?.[0];
  const reached = failed === null ? STAGES.length : STAGES.indexOf(failed);
  return (
    <ol class="stages">
      {STAGES.map((stage, at) => {
        const steps = trace.filter((each) => each.stage === stage);
        const bad = stage === failed;
        const late = at > reached && steps.length === 0;
        const deferred = explanation.decision.verdict === "defer";
        return (
          <li key={stage} class={bad ? "st bad" : "st"}>
            <Icon of={bad ? (deferred ? "wait" : "refused") : late ? "next" : "check"} tone={bad ? (deferred ? "owed" : "refused") : late ? "f3" : "holds"} label={bad ? "does not pass" : late ? "not reached" : "passes"} />
            <b class={bad ? (deferred ? "owed" : "refused") : ""}>{stage}</b>
            <div>
              {bad ? <><b>{explanation.decision.reason_code}</b>: <Message text={refusal?.message ?? SAYS[stage]!} />{refusal && <p class="next-step"><b>Next:</b> <Message text={refusal.next} /></p>}</> : late ? <span class="f3">not reached</span> : <span class="f2">{SAYS[stage]}</span>}
            </div>
            {bad && <div class="lines">{speakers.map((each) => <Lines key={each.key} speaker={each} source={policy !== null && policy.policy_hash === explanation.decision.policy_hash ? (policy.source?.text ?? null) : null} />)}</div>}
          </li>
        );
      })}
      <li class="st"><span /><b class="f2">ends when</b><div class="f2">{endOf(proposal, explanation)}</div></li>
    </ol>
  );
}

function endOf(proposal: Proposal, explanation: Explanation): string {
  if (proposal.status === "parked") {
    const changes = explanation.flip?.changes?.map((each) => `${nameReference(each.reference)} is ${each.to}, now ${each.now}`) ?? [];
    return `${changes.length > 0 ? `${changes.join("; ")}; or ` : ""}the case is closed, or at ${proposal.parked_until ? clock(Date.parse(proposal.parked_until)) : "its end"}`;
  }
  if (proposal.status === "asked") return "a person approves or rejects it, or the approval expires";
  return `it is ${proposal.status}`;
}

function tellFound({ found }: Schemas["TraceStep"]): string {
  return typeof found === "string" ? `found ${found}` : "found nothing";
}

/** The lines of the rule, each condition with what was found; without the file, the conditions alone. */
export function Lines({ speaker, source }: { speaker: Speaker; source: string | null }): JSX.Element | null {
  const steps = speaker.steps?.filter((each) => each.reference) ?? [];
  if (steps.length === 0) return null;
  const read = steps.find((each) => each.note)?.note?.replace(/^at audit head (\d+) ([0-9a-f]+)$/, (_, seq: string, hash: string) => `Belief read at event ${seq}, head ${short(hash)}.`);
  if (source === null || !speaker.origin) {
    return (
      <div class="code">
        {steps.map((step) => <div key={step.at} class={step.passed ? "" : "bad"}><span class="ln" /><span><Icon of={step.passed ? "check" : "cross"} tone={step.passed ? "holds" : "owed"} /></span><span class="said"><span class="text">{step.reference} {step.op}</span><span class="found">{tellFound(step)}</span></span></div>)}
      </div>
    );
  }
  const lines = source.split("\n");
  const first = speaker.origin.line;
  const indent = /^\s*/.exec(lines[first - 1] ?? "")![0].length;
  let last = first;
  while (last < lines.length && (lines[last]!.trim() === "" || /^\s*/.exec(lines[last]!)![0].length > indent)) last += 1;
  while (lines[last - 1]?.trim() === "") last -= 1;
  return (
    <>
      <div class="code" role="group" aria-label={`Lines ${first} to ${last} of the policy file`}>
        {lines.slice(first - 1, last).map((text, n) => {
          const line = first + n;
          const here = steps.filter(({ at }) => typeof at === "string" && speaker.origins?.[at]?.line === line);
          const bad = here.some((step) => !step.passed);
          return (
            <div key={line} class={bad ? "bad" : here.length ? "" : "dim"}>
              <span class="ln">{line}</span>
              <span>{here.length > 0 && <Icon of={bad ? "cross" : "check"} tone={bad ? "owed" : "holds"} label={bad ? "does not hold" : "holds"} />}</span>
              <span class="said">
                <span class="text">{text.slice(indent)}</span>
                {here.length > 0 && <span class="found">{here.map(tellFound).join(", ")}</span>}
              </span>
            </div>
          );
        })}
      </div>
      {read && <p class="f3 small">{read}</p>}
    </>
  );
}
