// The actions of a case: gates, proposals with their traces, the inbox, state with history, and memory.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, list } from "../../api/client";
import { follow, type Pulse } from "../../api/live";
import { ago, clock, count, plural } from "../../ui/format";
import { LiveChip, Page, lastSession } from "../../ui/frame";
import { Icon } from "../../ui/icons";
import { Empty, Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link, place, setQuery } from "../../ui/router";
import { Gates, nameOf, STATUS } from "./gates";
import { InboxPanel, countWaiting } from "./inbox";
import { type Case, type Proposal, findCases, pathOf, readInbox } from "./model";
import { Trace } from "./trace";

export function ActionsPage({ id }: { id: string }): JSX.Element {
  lastSession.value = id;
  const cases = useLoad(() => findCases(id), [id]);
  const belief = useLoad(() => get<{ n_survivors: number }>(`v1/sessions/${encodeURIComponent(id)}`, { fields: "n_survivors" }), [id]);
  const chosen = cases.value?.find((each) => each.case.case_id === place.value.query.get("case")) ?? cases.value?.[0];
  const [pulse, setPulse] = useState<Pulse | null>(null);
  return (
    <Page
      title="Actions"
      crumbs={<><Link to="" class="f3 wide">Cases</Link><span class="f3 wide" aria-hidden="true">/</span><Link to={`cases/${encodeURIComponent(id)}`} class="mono f2 wide">{chosen?.case.case_id ?? id.slice(0, 8)}</Link></>}
      chips={belief.value && <span class="chip wide">{plural(belief.value.n_survivors, "cause")} left</span>}
      status={<LiveChip pulse={pulse} />}
    >
      {cases.error !== null && <Panel title="Actions"><Failure error={cases.error} retry={cases.again} /></Panel>}
      {cases.loading && !cases.value && <Panel><Skeleton height={300} /></Panel>}
      {cases.value && !chosen && (
        <Panel>
          <Empty title="No case joins this session to a space">
            <p class="f2">An operator opens one; then calls can be gated on what this session believes:</p>
            <pre class="args" tabIndex={0} aria-label="A command to copy">{`cmbs case open INC-1 --session ${id} --agent AGENT --space SPACE`}</pre>
          </Empty>
        </Panel>
      )}
      {chosen && <CaseActions key={`${chosen.space}/${chosen.case.case_id}`} space={chosen.space} one={chosen.case} pulse={setPulse} />}
    </Page>
  );
}

/** A number that grows whenever something is written to a space. */
function useSpaceNews(space: string, tell: (pulse: Pulse) => void): number {
  const [news, setNews] = useState(0);
  useEffect(() => {
    let last: number | null = null;
    const live = follow(`v1/spaces/${encodeURIComponent(space)}/events`, {
      after: () => last,
      pulse: tell,
      take: (messages) => {
        for (const each of messages) if (each.id !== null) last = Number(each.id);
        if (messages.some((each) => each.event === "entry")) setNews((n) => n + 1);
      },
    });
    return () => live.stop();
  }, [space]);
  return news;
}

function CaseActions({ space, one, pulse }: { space: string; one: Case; pulse: (pulse: Pulse) => void }): JSX.Element {
  const news = useSpaceNews(space, pulse);
  const proposals = useLoad(async () => {
    const all = await list<Proposal>(`${pathOf(space)}/proposals`, "proposals", { case_id: one.case_id }, 500);
    return all.sort((a, b) => a.seq - b.seq);
  }, [space, one.case_id, news]);
  const inbox = useLoad(() => readInbox(space), [space, news]);
  useEffect(() => void countWaiting(), [inbox.value]);
  const newest = useMemo(() => [...(proposals.value ?? [])].reverse(), [proposals.value]);
  const chosen = newest.find((each) => each.proposal_id === place.value.query.get("proposal")) ?? newest.find((each) => each.status === "parked") ?? newest[0];
  const changed = (): void => {
    proposals.again();
    inbox.again();
  };
  return (
    <div class="al">
      <div>
        <Gates space={space} proposals={proposals.value ?? []} />
        <Panel title="Proposals" note={`${count(newest.length)} in this case`}>
          {proposals.error !== null && <Failure error={proposals.error} retry={proposals.again} />}
          {newest.length === 0 && !proposals.loading && <p class="note pad">No proposal yet.</p>}
          <ul class="props">
            {newest.slice(0, 100).map((each) => {
              const [icon, tone] = STATUS[each.status] ?? ["wait", ""];
              return (
                <li key={each.proposal_id} class={each === chosen ? "chosen" : ""}>
                  <Icon of={icon} tone={tone} label={each.status} />
                  <button type="button" class="link mono clip" aria-pressed={each === chosen} onClick={() => setQuery({ proposal: each.proposal_id })}>{nameOf(each)}</button>
                  <span class="f3 num">{each.status} #{each.seq}</span>
                </li>
              );
            })}
          </ul>
        </Panel>
      </div>
      <div>
        {chosen ? <Trace key={chosen.proposal_id} space={space} proposal={chosen} changed={changed} /> : <Panel title="Proposal">{proposals.loading ? <Skeleton height={300} /> : <p class="note pad">Nothing was proposed yet.</p>}</Panel>}
        <StatePanel space={space} news={news} />
      </div>
      <div>
        {inbox.error !== null ? <Panel title="Waits for you"><Failure error={inbox.error} retry={inbox.again} /></Panel> : <InboxPanel items={inbox.value ?? []} changed={changed} />}
      </div>
    </div>
  );
}

interface Delta {
  seq: number;
  ts: string;
  verb: string;
  set: Record<string, string>;
  unset: string[];
}

interface Memory {
  entry_id: string;
  kind: string;
  claim: unknown;
  conflict_state?: string;
}

type StateTab = "changes" | "all" | "memory";

function StatePanel({ space, news }: { space: string; news: number }): JSX.Element {
  const [tab, setTab] = useState<StateTab>("changes");
  const state = useLoad(async () => {
    const path = pathOf(space);
    const [values, deltas, memory] = await Promise.all([
      get<{ values: Record<string, string> }>(`${path}/state`),
      list<Delta>(`${path}/deltas`, "deltas", {}, 500),
      list<Memory>(`${path}/memory`, "memory", {}, 200),
    ]);
    return { values: Object.entries(values.values).filter(([key]) => !key.startsWith("constraint.") && !key.startsWith("policy.")), deltas: deltas.reverse(), memory };
  }, [space, news]);
  const names: [StateTab, string, number | null][] = [["changes", "History", state.value?.deltas.length ?? null], ["all", "Facts and goals", state.value?.values.length ?? null], ["memory", "Memory", state.value?.memory.length ?? null]];
  return (
    <Panel title="State" note={<span class="tabs" role="group" aria-label="What of the state">{names.map(([name, label, n]) => <button key={name} type="button" aria-pressed={tab === name} onClick={() => setTab(name)}>{label} {n !== null && <span class="num">{count(n)}</span>}</button>)}</span>}>
      {state.error !== null && <Failure error={state.error} retry={state.again} />}
      {!state.value && state.loading && <Skeleton height={90} />}
      {state.value && tab === "all" && (state.value.values.length === 0 ? <p class="note pad">No fact and no goal is set.</p> : <Rows rows={state.value.values.map(([key, value]) => [key, <span class="ins mono">{value}</span>, ""])} />)}
      {state.value && tab === "memory" && (state.value.memory.length === 0 ? <p class="note pad">Nothing is in memory.</p> : <Rows rows={state.value.memory.map((each) => [each.entry_id, <span>{typeof each.claim === "string" ? each.claim : JSON.stringify(each.claim)}</span>, `${each.kind}${each.conflict_state && each.conflict_state !== "none" ? `, ${each.conflict_state}` : ""}`])} />)}
      {state.value && tab === "changes" && <Rows rows={state.value.deltas.slice(0, 40).flatMap((delta): [string, JSX.Element, string][] => [
        ...Object.entries(delta.set).map(([key, value]): [string, JSX.Element, string] => [key, <span class="ins mono">+ {value}</span>, `${delta.verb} #${delta.seq} ${clock(Date.parse(delta.ts))}`]),
        ...delta.unset.map((key): [string, JSX.Element, string] => [key, <span class="del mono">− taken away</span>, `${delta.verb} #${delta.seq} ${ago(Date.parse(delta.ts), Date.now())}`]),
      ])} />}
    </Panel>
  );
}

function Rows({ rows }: { rows: [string, JSX.Element, string][] }): JSX.Element {
  return (
    <ul class="facts">
      {rows.map(([key, value, note], n) => <li key={`${key}${n}`}><span class="mono clip" title={key}>{key}</span><span class="clip">{value}</span><span class="f3 num nowrap">{note}</span></li>)}
    </ul>
  );
}
