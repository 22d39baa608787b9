// What keeps calls of a case from running: each condition with the value that was found.

import type { JSX } from "preact";
import { breakNames, clock } from "../../ui/format";
import { Exact } from "../../ui/exact";
import { Icon, type Shape } from "../../ui/icons";
import { useNews } from "../../ui/news";
import { Failure, Message, Panel, useLoad } from "../../ui/parts";
import type { Explanation, Proposal } from "./model";
import { EVERY_SPACE, explain, explainNow, findSpacesOf, listProposals, listSpeakers, readInbox, tellNext } from "./model";
import { identity, isOperator, may } from "../../api/client";

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
    if (!may("spaces:read")) return [];
    const to = `cases/${encodeURIComponent(id)}/actions`;
    const [spaces, inbox] = await Promise.all([findSpacesOf(id), readInbox()]);
    const waiting: Blocker[] = [];
    for (const space of spaces) {
      const [first, ...more] = await listProposals(space, { case_id: id, status: "parked" }, 50);
      if (first) waiting.push({ key: first.proposal_id, icon: "wait", tone: "owed", text: `${nameOf(first)} waits${more.length > 0 ? `, and ${more.length} more` : ""}`, to: `${to}?space=${encodeURIComponent(space)}`, yours: false });
      if (waiting.length > 0) break;
    }
    const asked = inbox.filter((each) => each.approval && each.case_id === id);
    if (asked.length === 0) return waiting;
    return [...waiting, { key: "asked", icon: "person", tone: "", text: `${asked.length === 1 ? "1 approval waits" : `${asked.length} approvals wait`} for you · ${asked[0]!.approval!.tool_id ?? "state"}`, to, yours: true }];
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

interface Standing {
  word: string;
  tone: string;
  icon: Shape;
  /** What it depends on beside the policy; null where it does not. */
  about: string | null;
}

/** Stages that look at a call for itself, before any rule is asked. */
const OF_THE_CALL = new Set(["shape", "freshness", "authority", "tool", "capability", "conflicts"]);

/** Where a gate stands, by what the policy says now of the call that was last asked for. */
function readStanding({ decision, because }: Explanation): Standing {
  if (decision.verdict === "allow") return { word: "open", tone: "holds", icon: "unlock", about: null };
  if (decision.failure === "ask") return { word: "asks a person", tone: "", icon: "person", about: null };
  if (decision.verdict === "defer") return { word: "closed", tone: "owed", icon: "lock", about: null };
  if (decision.stage && OF_THE_CALL.has(decision.stage)) return { word: "not for this call", tone: "owed", icon: "lock", about: "The last call does not pass before a rule is asked; another one may." };
  const steps = because.flatMap((each) => each.speakers ?? []).flatMap((each) => each.steps ?? []).filter((each) => each.reference && !each.passed);
  if (steps.length > 0 && steps.every((each) => each.reference!.startsWith("$args."))) return { word: "depends on arguments", tone: "owed", icon: "lock", about: "The arguments of the last call do not pass; others may." };
  const isAsked = steps.some((each) => each.reference !== "$tool.id");
  return isAsked ? { word: "denied", tone: "refused", icon: "refused", about: null } : { word: "nothing allows it", tone: "refused", icon: "refused", about: null };
}

/** One gate for each tool that was asked for. Where it stands is decided now, of the newest call of that tool. */
export function Gates({ space, proposals, news, belief }: { space: string; proposals: Proposal[]; news: number; belief: number }): JSX.Element {
  const newest = new Map<string, Proposal>();
  for (const each of proposals) newest.set(nameOf(each), each);
  const gates = [...newest.entries()].sort(([, a], [, b]) => Number(b.status === "parked") - Number(a.status === "parked"));
  return (
    <Panel title="Gates of this case">
      {gates.length === 0 && <p class="note pad">No call was proposed in this case yet.</p>}
      {gates.map(([tool, proposal]) => <Gate key={tool} space={space} tool={tool} proposal={proposal} news={news + belief} />)}
    </Panel>
  );
}

function Gate({ space, tool, proposal, news }: { space: string; tool: string; proposal: Proposal; news: number }): JSX.Element {
  // How a call of another would be decided now is for operators; others see how it was.
  const isNow = isOperator() || proposal.actor.id === identity.value?.id;
  const found = useLoad(() => (isNow ? explainNow : explain)(space, proposal.proposal_id), [space, proposal.proposal_id, news]);
  const standing = found.value && readStanding(found.value);
  const matched = found.value?.decision.candidates[0]?.matched?.[0];
  const speakers = found.value && found.value.decision.verdict !== "allow" ? listSpeakers(found.value).filter((each) => each.key === matched) : [];
  const isLate = proposal.status === "denied" && standing !== null && standing.word !== "nothing allows it";
  const refusal = found.value?.refusals?.[0];
  return (
    <div class="gate">
      <div class="hd"><Icon of={standing?.icon ?? "wait"} tone={standing?.tone ?? "f3"} /><span class="mono strong grow clip"><Exact text={tool} /></span><span class={`chip ${standing?.tone ?? ""}`}>{standing?.word ?? "…"}</span></div>
      {found.error !== null && <Failure error={found.error} retry={found.again} />}
      {standing?.about && <p class="f2 small">{standing.about}</p>}
      {speakers.flatMap((speaker) => speaker.steps?.filter((step) => step.reference && step.reference !== "$tool.id").map((step) => (
        <div key={`${speaker.key}${step.at}`} class="cond">
          <Icon of={step.passed ? "check" : "cross"} tone={step.passed ? "holds" : "owed"} label={step.passed ? "holds" : "does not hold"} />
          <span class="mono f2 wrap">{breakNames((step.at && speaker.origins?.[step.at]?.condition) || `${step.reference} ${step.op ?? ""}`)}</span>
          <span class={step.passed ? "f3" : "owed"}>{step.found ?? "nothing"}</span>
        </div>
      )))}
      {standing?.word === "closed" && refusal && <p class="f2 small wrap"><Message text={tellNext(refusal.next)} /></p>}
      {!isNow && <p class="f3 small">As the last call was decided.</p>}
      {isLate && <p class="f3 small">The last call was denied.</p>}
      {proposal.status === "parked" && proposal.parked_until && <p class="f3 small">The last call is looked at again by itself until {clock(Date.parse(proposal.parked_until)).slice(0, 5)}.</p>}
    </div>
  );
}
