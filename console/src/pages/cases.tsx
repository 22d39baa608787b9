// Cases and sessions, newest first: what waits for a person, what is open, what is closed. Found and filtered by the server.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Schemas, api, read } from "../api/client";
import type { paths } from "../api/schema";
import { bitsOf, nextSource, type Source } from "../model/log";
import { ago, bits, count, nameSession, plural } from "../ui/format";
import { LiveChip, Page } from "../ui/frame";
import { Icon, type Shape } from "../ui/icons";
import { useKeys } from "../ui/keys";
import { useNews } from "../ui/news";
import { Empty, Failure, Monogram, Panel, Skeleton, ToCopy, useLoad } from "../ui/parts";
import { Link, place, setQuery } from "../ui/router";
import { Spark } from "../ui/spark";
import { noteWaiting } from "./actions/inbox";
import { readInbox } from "./actions/model";

type Listed = Schemas["SessionItem"];
type Filters = NonNullable<paths["/v1/sessions"]["get"]["parameters"]["query"]>;

const PAGE = 50;
const STATES: [Listed["state"] | null, string][] = [
  [null, "All"],
  ["open", "Open"],
  ["concluded", "Concluded"],
  ["contradiction", "Contradiction"],
  ["terminated", "Closed"],
];
const SPANS: [string, string, number][] = [["", "Any time", 0], ["1", "Last day", 1], ["7", "Last 7 days", 7], ["30", "Last 30 days", 30]];

/** Sessions in which something waits for a person, and what. */
async function findAsked(): Promise<Map<string, string>> {
  const asked = new Map<string, string>();
  const items = await readInbox();
  noteWaiting(items);
  for (const { case_id, kind } of items) {
    if (case_id === null) continue;
    if (kind === "approval") asked.set(case_id, "Approve?");
    else if (!asked.has(case_id)) asked.set(case_id, "Did it run?");
  }
  return asked;
}

export function CasesPage(): JSX.Element {
  const query = place.value.query;
  const state = STATES.find(([name]) => name === query.get("state"))?.[0] ?? null;
  const text = query.get("text") ?? "";
  const kit = query.get("kit") ?? "";
  const agent = query.get("agent") ?? "";
  const owner = query.get("owner") ?? "";
  const severity = query.get("severity") ?? "";
  const days = Number(query.get("days") ?? 0);
  const [cursors, setCursors] = useState<string[]>([]);
  const since = days > 0 ? new Date(Date.now() - days * 86_400_000).toISOString() : undefined;
  const said = { state: state ?? undefined, text: text || undefined, kit: kit || undefined, agent: agent || undefined, owner: owner || undefined, severity: severity || undefined };
  const filters: Filters = { ...said, order: "newest", limit: PAGE, since };
  const inputs = [state, text, kit, agent, owner, severity, days];
  const found = useLoad(async (signal) => {
    const pages: Listed[] = [];
    let next: string | null = null;
    for (const cursor of [undefined, ...cursors]) {
      const query: Filters = { ...filters, include: "trail", cursor };
      const page = await read(api.GET("/v1/sessions", { params: { query }, signal }));
      pages.push(...page.sessions);
      next = page.next_cursor;
    }
    return { sessions: pages, next };
  }, [...inputs, cursors.length]);
  const news = useNews({ every: {} });
  const asked = useLoad(findAsked, [news.count]);
  // A case stays in its section until the list is drawn anew; that something waits in it is said where it stands.
  const placed = useMemo(() => asked.value, [found.value, asked.value === null]);
  const changed = useChangedSessions(found.value?.sessions ?? null, filters, news.count);
  useKeys({ j: () => moveRow(1), k: () => moveRow(-1) });
  const all = found.value?.sessions ?? [];
  const waits = all.filter((each) => placed?.has(each.session_id));
  const rest = all.filter((each) => !placed?.has(each.session_id));
  const elsewhere = placed ? all.filter((each) => placed.has(each.session_id) !== asked.value?.has(each.session_id)) : [];
  const moved = new Set([...changed, ...elsewhere.map((each) => each.session_id)]).size;
  const refresh = (): void => {
    found.again();
    asked.again();
  };
  return (
    <Page title="Cases" status={<LiveChip pulse={news.pulse} retry={news.retry} />}>
      <div class="filters">
        <span class="seg" role="group" aria-label="State">
          {STATES.map(([name, label]) => (
            <button key={label} type="button" aria-pressed={state === name} onClick={() => { setCursors([]); setQuery({ state: name }); }}>
              {name === "contradiction" && <Icon of="contra" tone="contra" />}{label}
            </button>
          ))}
        </span>
        <label class="field"><Icon of="search" /><input type="search" aria-label="Name, title or id" placeholder="name, title, id" value={text} onInput={(event) => { setCursors([]); setQuery({ text: event.currentTarget.value || null }); }} /></label>
        <label class="field"><span class="f3">kit</span><input aria-label="Kit" value={kit} onChange={(event) => { setCursors([]); setQuery({ kit: event.currentTarget.value.trim() || null }); }} /></label>
        <label class="field"><span class="f3">agent</span><input aria-label="Agent" value={agent} onChange={(event) => { setCursors([]); setQuery({ agent: event.currentTarget.value.trim() || null }); }} /></label>
        <label class="field"><span class="f3">owner</span><input aria-label="Owner" value={owner} onChange={(event) => { setCursors([]); setQuery({ owner: event.currentTarget.value.trim() || null }); }} /></label>
        <label class="field"><span class="f3">severity</span><input aria-label="Severity" value={severity} onChange={(event) => { setCursors([]); setQuery({ severity: event.currentTarget.value.trim() || null }); }} /></label>
        <select class="field when" aria-label="When" value={query.get("days") ?? ""} onChange={(event) => { setCursors([]); setQuery({ days: event.currentTarget.value || null }); }}>
          {SPANS.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
        </select>
        <span class="grow" />
        {all.length > 1 && <Link class="btn ghost" to={`compare?a=${encodeURIComponent(all[0]!.session_id)}&b=${encodeURIComponent(all[1]!.session_id)}`}><Icon of="compare" />Compare</Link>}
        {moved > 0 && <button type="button" class="btn" onClick={refresh}>{plural(moved, "case")} moved</button>}
      </div>
      {found.error !== null && <Panel title="Cases"><Failure error={found.error} retry={found.again} /></Panel>}
      {found.loading && found.value === null && found.error === null && <Panel><Skeleton height={240} /></Panel>}
      {found.value && all.length === 0 && (state || text || kit || agent || owner || severity || days ? <Panel><Empty title="No case matches"><button type="button" class="btn" onClick={() => setQuery({ state: null, text: null, kit: null, agent: null, owner: null, severity: null, days: null })}>Show all</button></Empty></Panel> : <NoCase />)}
      <Section title="Waits for a person" sessions={waits} asked={asked.value} />
      <Section title="Open" sessions={rest.filter((each) => each.state !== "terminated")} asked={asked.value} />
      <Section title="Closed" sessions={rest.filter((each) => each.state === "terminated")} asked={asked.value} />
      {found.value?.next && <p class="row"><button type="button" class="btn" onClick={() => setCursors([...cursors, found.value!.next!])}>Older cases</button></p>}
    </Page>
  );
}

function moveRow(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("a.case")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

/** The sessions that have changed since they were drawn. Rows never move under the pointer: the new order waits for a click. */
function useChangedSessions(shown: Listed[] | null, filters: Filters, news: number): string[] {
  const [changed, setChanged] = useState<string[]>([]);
  useEffect(() => setChanged([]), [shown]);
  useEffect(() => {
    if (shown === null || news === 0) return undefined;
    const controller = new AbortController();
    const known = new Map(shown.map((each) => [each.session_id, each.head_seq]));
    read(api.GET("/v1/sessions", { params: { query: filters }, signal: controller.signal })).then(
      (page) => setChanged(page.sessions.filter((each) => known.get(each.session_id) !== each.head_seq).map((each) => each.session_id)),
      () => undefined,
    );
    return () => controller.abort();
  }, [news]);
  return changed;
}

function Section({ title, sessions, asked }: { title: string; sessions: Listed[]; asked: Map<string, string> | null }): JSX.Element | null {
  if (sessions.length === 0) return null;
  return (
    <>
      <h2 class="section-title">{title} <span class="note">newest first</span></h2>
      <Panel label={title}>
        <div class="case head" aria-hidden="true"><span /><span>Case</span><span>Causes left</span><span class="c-spark">Bits left, by event</span><span class="c-who">Sources</span><span class="c-block">Blocking, or found</span><span class="c-when right">Changed</span></div>
        {sessions.map((each) => <Row key={each.session_id} session={each} asks={asked?.get(each.session_id) ?? null} />)}
      </Panel>
    </>
  );
}

function Row({ session, asks }: { session: Listed; asks: string | null }): JSX.Element {
  const { state } = session;
  const glyph: [Shape, string, string] = asks ? ["person", "", "waits for a person"] : state === "terminated" ? ["flag", "gone-mark", "closed"] : state === "contradiction" ? ["contra", "contra", "contradiction"] : ["alive", "holds", state];
  const tone = state === "terminated" ? "f2" : state === "contradiction" ? "contra" : "holds";
  const labels = Object.entries(session.labels).map(([name, value]) => `${name}:${value}`);
  return (
    <Link class={asks ? "case yours-row" : "case"} to={`cases/${encodeURIComponent(session.name ?? session.session_id)}${asks ? "/actions" : ""}`}>
      <span class="glyph"><Icon of={glyph[0]} tone={glyph[1]} size={16} label={glyph[2]} /></span>
      <span class="clip"><span class="title clip">{nameSession(session)}</span><br /><span class="f3"><span class="mono">{session.name ?? session.session_id.slice(0, 8)}</span>{[session.severity, session.owner, session.kit, ...labels].filter(Boolean).map((each) => ` · ${each}`).join("")}</span></span>
      <span><span class={`fig num ${tone}`}>{count(session.n_survivors)}</span><br /><span class="f2 num">of {count(session.universe_size)}{session.n_survivors > 1 ? ` · ${bits(bitsOf(session.n_survivors))} bits` : ""}</span></span>
      <span class="c-spark"><Spark trail={session.trail ?? []} head={session.head_seq} universe={session.universe_size} left={session.n_survivors} closed={state === "terminated"} /></span>
      <Sources ids={session.sources} />
      <span class="c-block clip"><Blocking session={session} /></span>
      <span class="c-when right f3">{asks ? <span class="chip yours">{asks}</span> : state === "terminated" ? "closed" : state}<br />{ago(Date.parse(session.updated_ts), Date.now())}</span>
    </Link>
  );
}

const MOST_SOURCES = 4;

/** Who reported, by the letters and colours of the session page. */
function Sources({ ids }: { ids: string[] }): JSX.Element {
  const sources: Source[] = [];
  for (const id of ids) sources.push(nextSource(id, sources));
  const more = sources.length - MOST_SOURCES;
  return (
    <span class="c-who whos" title={ids.join(", ")}>
      {sources.slice(0, MOST_SOURCES).map((each) => <span key={each.id}><Monogram source={each} />{each.name}</span>)}
      {more > 0 && <span class="f3">and {count(more)} more</span>}
    </span>
  );
}

function Blocking({ session }: { session: Listed }): JSX.Element {
  const [first, ...more] = session.active_obligations;
  if (session.state === "contradiction") return <><Icon of="contra" tone="contra" /> <b class="contra">nothing is left</b></>;
  if (first !== undefined) return <><Icon of="lock" tone="owed" /> {first}{more.length > 0 ? `, and ${more.length} more` : ""}</>;
  if (session.conclusion !== null) return <><Icon of={session.state === "terminated" ? "flag" : "check"} tone="holds" /> <span class="mono">{session.conclusion}</span></>;
  return <span class="f2"><Icon of="check" tone="holds" /> nothing blocks</span>;
}

function NoCase(): JSX.Element {
  const call = `curl -s ${new URL("v1/sessions", document.baseURI).href} \\\n  -H 'content-type: application/json' \\\n  -d '{"ontology": {"hypothesis_space_id": "demo", "hypothesis_version": "1",\n       "causal_graph_ref": "demo", "causal_graph_version": "1"},\n       "hypotheses": ["bad-deploy", "dns", "disk"]}'`;
  return (
    <Panel>
      <Empty title="No case yet">
        <p class="f2">A case begins with the causes that are possible. Play the demo with <code>make serve DEMO=1</code>, or send this:</p>
        <ToCopy text={call} />
      </Empty>
    </Panel>
  );
}
