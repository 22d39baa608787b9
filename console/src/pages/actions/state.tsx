// The state of a space: what is set, how it came about, and what is kept in memory.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, api, list } from "../../api/client";
import { isPolicyKey, listHistory, nameStep, type Change, type History } from "../../model/state";
import { ago, clock, count, plural, showMembers } from "../../ui/format";
import { useFresh } from "../../ui/fresh";
import { Icon } from "../../ui/icons";
import { Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link } from "../../ui/router";
import { readValues } from "./model";

type Memory = Schemas["MemoryResponse"];

type Tab = "history" | "values" | "memory";

const PAGE = 1000;
/** More commits than these are not read: the page says so. */
const MOST_COMMITS = 10_000;
const MOST_ROWS = 200;

interface Read {
  values: [string, string][];
  history: History;
  isCut: boolean;
  memory: Memory[];
}

async function readState(space: string): Promise<Read> {
  const path = { space_id: space };
  const askCommits = (cursor?: string) =>
    api.GET("/v1/spaces/{space_id}/deltas", { params: { path, query: { limit: PAGE, cursor } } });
  const askMemory = (cursor?: string) =>
    api.GET("/v1/spaces/{space_id}/memory", { params: { path, query: { cursor } } });
  const [values, commits, memory] = await Promise.all([
    readValues(space),
    list(askCommits, (page) => page.deltas, MOST_COMMITS),
    list(askMemory, (page) => page.memory, MOST_ROWS),
  ]);
  return {
    values: Object.entries(values).filter(([key]) => !isPolicyKey(key)),
    history: listHistory(commits),
    isCut: commits.length >= MOST_COMMITS,
    memory: memory.reverse(),
  };
}

export function StatePanel({ space, news }: { space: string; news: number }): JSX.Element {
  const [tab, setTab] = useState<Tab>("history");
  const [only, setOnly] = useState<string | null>(null);
  const state = useLoad(() => readState(space), [space, news]);
  const read = state.value;
  const tabs: [Tab, string, number | null][] = [
    ["history", "History", read && read.history.changes.length + read.history.policy.length],
    ["values", "Facts and goals", read && read.values.length],
    ["memory", "Memory", read && read.memory.length],
  ];
  const showHistory = (key: string | null): void => {
    setOnly(key);
    setTab("history");
  };
  return (
    <Panel title="State" note={<span class="tabs" role="group" aria-label="What of the state">{tabs.map(([name, label, n]) => <button key={name} type="button" aria-pressed={tab === name} onClick={() => setTab(name)}>{label} {n !== null && <span class="num">{count(n)}</span>}</button>)}</span>}>
      {state.error !== null && <Failure error={state.error} retry={state.again} />}
      {!read && state.loading && <Skeleton height={90} />}
      {read && tab === "history" && <HistoryRows space={space} read={read} only={only} showAll={() => setOnly(null)} />}
      {read && tab === "values" && <ValueRows read={read} choose={showHistory} />}
      {read && tab === "memory" && <MemoryRows entries={read.memory} />}
    </Panel>
  );
}

function tellWhen(ts: string): string {
  return ago(Date.parse(ts), Date.now());
}

function HistoryRows({ space, read, only, showAll }: { space: string; read: Read; only: string | null; showAll: () => void }): JSX.Element {
  const steps: { seq: number; key: string | null; row: JSX.Element }[] = read.history.changes.map((each) => ({ seq: each.seq, key: each.key, row: <ChangeRow key={`${each.seq}${each.key}`} change={each} /> }));
  for (const each of read.history.policy) {
    steps.push({ seq: each.seq, key: null, row: <li key={`${each.seq}policy`}><Link class="under" to={`spaces/${encodeURIComponent(space)}/policy`}>policy</Link><span class="f2">{plural(each.keys, "rule or setting", "rules and settings")} changed</span><When seq={each.seq} ts={each.ts} verb={each.verb} /></li> });
  }
  steps.sort((a, b) => b.seq - a.seq);
  const { shown, chip } = useFresh(steps, (each) => `${each.seq} ${each.key}`);
  const rows = only === null ? shown : shown.filter((each) => each.key === only);
  return (
    <>
      {only !== null && <p class="pad row"><span class="grow">Changes of <b class="mono">{only}</b></span><button type="button" class="btn ghost" onClick={showAll}>All changes</button></p>}
      {rows.length === 0 && <p class="note pad">Nothing was written to the state yet.</p>}
      {chip}
      <ul class="facts" aria-label="History of the state">{rows.slice(0, MOST_ROWS).map((each) => each.row)}</ul>
      {rows.length > MOST_ROWS && <p class="note pad">The newest {count(MOST_ROWS)} of {count(rows.length)}.</p>}
      {read.isCut && <p class="note pad">Only the first {count(MOST_COMMITS)} commits of this space are read here.</p>}
    </>
  );
}

function ChangeRow({ change }: { change: Change }): JSX.Element {
  return (
    <li>
      <span class="mono wrap">{change.key}</span>
      <span class="mono wrap">
        {change.before !== null && <span class="del">− {change.before} </span>}
        {change.after !== null && <span class="ins">+ {change.after}</span>}
      </span>
      <When seq={change.seq} ts={change.ts} verb={change.verb} />
    </li>
  );
}

function When({ seq, ts, verb }: { seq: number; ts: string; verb: string }): JSX.Element {
  return <span class="f3 num right" title={clock(Date.parse(ts))}>{nameStep(verb)}<br />entry {seq}, {tellWhen(ts)}</span>;
}

function ValueRows({ read, choose }: { read: Read; choose: (key: string) => void }): JSX.Element {
  if (read.values.length === 0) return <p class="note pad">No fact and no goal is set.</p>;
  return (
    <ul class="facts" aria-label="Facts and goals">
      {read.values.map(([key, value]) => {
        const changes = read.history.changes.filter((each) => each.key === key);
        return (
          <li key={key}>
            <span class="mono wrap">{key}</span>
            <span class="mono wrap">{value}</span>
            <button type="button" class="link f2 num" onClick={() => choose(key)}>{plural(changes.length, "change")}{changes[0] ? `, ${tellWhen(changes[0].ts)}` : ""}</button>
          </li>
        );
      })}
    </ul>
  );
}

function MemoryRows({ entries }: { entries: Memory[] }): JSX.Element {
  const { shown, chip } = useFresh(entries, (each) => each.entry_id);
  return (
    <>
      {entries.length === 0 && <p class="note pad">Nothing is in memory.</p>}
      {chip}
      <ul class="facts" aria-label="Memory">{shown.map((each) => {
        const disputed = each.conflict_state !== "none";
        const standing = each.expired ? "expired" : each.conflict_state === "contradictory" ? "contradicted" : disputed ? "perhaps contradicted" : each.confirmed ? "confirmed" : "not confirmed";
        return (
          <li key={each.entry_id} class={each.expired ? "dim" : ""}>
            <span class="mono wrap">{each.entry_id}</span>
            <span class="wrap">{showMembers(each.claim)}<br /><span class="f3">{each.kind} of {each.author.id}, {((each.evidence.confidence_milli ?? 0) / 10).toFixed(0)} % sure, {plural(each.evidence.source_chunk_ids?.length ?? 0, "source")}</span></span>
            <span class="right"><Icon of={disputed ? "warn" : each.confirmed && !each.expired ? "check" : "wait"} tone={disputed ? "owed" : each.confirmed && !each.expired ? "holds" : "f3"} /> <span class={disputed ? "owed" : "f2"}>{standing}</span><br /><span class="f3 num">{tellWhen(each.ts)}</span></span>
          </li>
        );
      })}</ul>
    </>
  );
}
