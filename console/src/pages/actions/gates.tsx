// What keeps calls of a case from running: each condition with the value that was found.

import type { JSX } from "preact";
import { breakNames, clock } from "../../ui/format";
import { Icon, type Shape } from "../../ui/icons";
import { useNews } from "../../ui/news";
import { Failure, Message, Panel, useLoad } from "../../ui/parts";
import type { Explanation, Proposal } from "./model";
import { EVERY_SPACE, explain, findCases, listProposals, listSpeakers, readInbox, tellNext } from "./model";
import { may } from "../../api/client";

export interface Blocker {
  key: string;
  icon: Shape;
  tone: string;
  text: string;
  to: string;
  yours: boolean;
}

/** For the session page: what waits in spaces that have a case on it, one line of calls and one of what a person is asked. */
export function useBlockers(id: string): Blocker[] {
  const news = useNews(may("spaces:read") ? EVERY_SPACE : null);
  const loaded = useLoad(async (): Promise<Blocker[]> => {
    const cases = may("spaces:read") ? await findCases(id) : [];
    const to = `cases/${encodeURIComponent(id)}/actions`;
    const [waiting, yours]: [Blocker[], Blocker[]] = [[], []];
    for (const each of cases.filter((one) => one.case.status === "open")) {
      const proposals = await listProposals(each.space, { case_id: each.case.case_id, status: "parked" }, 50);
      const [first] = proposals;
      if (first) waiting.push({ key: first.proposal_id, icon: "wait", tone: "owed", text: `${nameOf(first)} waits${proposals.length > 1 ? `, and ${proposals.length - 1} more` : ""}`, to, yours: false });
      const asked = (await readInbox(each.space)).filter((one) => one.approval && one.case_id === each.case.case_id);
      if (asked.length > 0) yours.push({ key: "asked", icon: "person", tone: "", text: `${asked.length === 1 ? "1 approval waits" : `${asked.length} approvals wait`} for you · ${asked[0]!.approval!.tool_id ?? "state"}`, to, yours: true });
    }
    return [...waiting.slice(0, 1), ...yours.slice(0, 1)];
  }, [id, news.count]);
  return loaded.value ?? [];
}

export function nameOf(proposal: Proposal): string {
  const [first] = proposal.candidates;
  if (first?.type === "tool_call") return first.tool_id;
  return Object.keys(first?.set ?? {}).concat(first?.unset ?? [])[0] ?? proposal.proposal_id;
}

export const STATUS: Record<string, [Shape, string]> = {
  denied: ["refused", "refused"],
  rejected: ["refused", "refused"],
  asked: ["person", ""],
  parked: ["wait", "owed"],
  ready: ["wait", "f2"],
  running: ["play", "f2"],
  committed: ["check", "holds"],
  failed: ["cross", "refused"],
  withdrawn: ["cross", "f3"],
  expired: ["cross", "f3"],
};

const WORD: Record<string, [string, string]> = { parked: ["closed", "owed"], asked: ["asks a person", ""], denied: ["nothing allows it", "refused"], committed: ["open", "holds"], ready: ["open", "holds"], running: ["open", "holds"] };

/** One gate for each tool that was asked for, by its newest proposal. */
export function Gates({ space, proposals }: { space: string; proposals: Proposal[] }): JSX.Element {
  const newest = new Map<string, Proposal>();
  for (const each of proposals) newest.set(nameOf(each), each);
  const gates = [...newest.entries()].sort(([, a], [, b]) => Number(b.status === "parked") - Number(a.status === "parked"));
  return (
    <Panel title="Gates of this case">
      {gates.length === 0 && <p class="note pad">No call was proposed in this case yet.</p>}
      {gates.map(([tool, proposal]) => <Gate key={tool} space={space} tool={tool} proposal={proposal} />)}
    </Panel>
  );
}

function Gate({ space, tool, proposal }: { space: string; tool: string; proposal: Proposal }): JSX.Element {
  const [word, tone] = WORD[proposal.status] ?? [proposal.status, ""];
  const closed = proposal.status === "parked";
  const found = useLoad(async (): Promise<Explanation | null> => (closed ? explain(space, proposal.proposal_id) : null), [space, proposal.proposal_id, proposal.status]);
  const [icon] = word === "open" ? ["unlock" as Shape] : closed ? ["lock" as Shape] : [STATUS[proposal.status]?.[0] ?? ("wait" as Shape)];
  const matched = proposal.decision.candidates[0]?.matched?.[0];
  const speakers = found.value ? listSpeakers(found.value).filter((each) => each.key === matched) : [];
  return (
    <div class="gate">
      <div class="hd"><Icon of={icon} tone={tone} /><span class="mono strong grow clip">{tool}</span><span class={`chip ${tone}`}>{word}</span></div>
      {found.error !== null && <Failure error={found.error} />}
      {speakers.flatMap((speaker) => speaker.steps?.filter((step) => step.reference).map((step) => (
        <div key={`${speaker.key}${step.at}`} class="cond">
          <Icon of={step.passed ? "check" : "cross"} tone={step.passed ? "holds" : "owed"} label={step.passed ? "holds" : "does not hold"} />
          <span class="mono f2 wrap">{breakNames((step.at && speaker.origins?.[step.at]?.condition) || `${step.reference} ${step.op ?? ""}`)}</span>
          <span class={step.passed ? "f3" : "owed"}>{step.found ?? "nothing"}</span>
        </div>
      )))}
      {closed && found.value?.refusals?.[0] && <p class="f2 small"><Message text={tellNext(found.value.refusals[0].next)} /></p>}
      {closed && proposal.parked_until && <p class="f3 small">looks again by itself until {clock(Date.parse(proposal.parked_until)).slice(0, 5)}</p>}
    </div>
  );
}
