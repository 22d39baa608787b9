// The session page: the answer, the funnel, the causes, and why. The page is a function of (events, at).

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { follow, type Pulse } from "../../api/live";
import { moveTo, zoom, type Extent } from "../../model/funnel";
import { loadSession } from "../../model/load";
import type { AuditEvent, SessionLog } from "../../model/log";
import { ago, clock, count, plural } from "../../ui/format";
import { LiveChip, Page, lastSession, said } from "../../ui/frame";
import { type CaseAbout, listAbout } from "../case";
import { BeliefFunnel } from "../../ui/funnel";
import { Icon } from "../../ui/icons";
import { useKeys } from "../../ui/keys";
import { Failure, Panel, Skeleton } from "../../ui/parts";
import { Link, place, setQuery } from "../../ui/router";
import { AskNext, type Probe, useProbes } from "./asking";
import { AnswerStrip } from "./strip";
import { Causes } from "./causes";
import { EventTable } from "./events";
import { useGhosts, type Ghosts } from "./ghosts";
import { Player } from "./player";
import { Refused, Verification, useVerification } from "./side";
import { WhyRuledOut } from "./why";

interface Session {
  log: SessionLog | null;
  size: number;
  done: boolean;
  error: unknown;
  pulse: Pulse | null;
  retry: () => void;
  again: () => void;
}

/** A session, loaded and then followed. */
export function useSession(id: string): Session {
  const [state, setState] = useState<{ log: SessionLog | null; size: number; done: boolean; error: unknown }>({ log: null, size: 0, done: false, error: null });
  const [pulse, setPulse] = useState<Pulse | null>(null);
  const [round, setRound] = useState(0);
  const live = useRef<{ stop: () => void; now: () => void } | null>(null);
  useEffect(() => {
    const controller = new AbortController();
    setState({ log: null, size: 0, done: false, error: null });
    setPulse(null);
    loadSession(id, controller.signal, (log, done) => setState({ log, size: log.size, done, error: null })).then(
      (log) => {
        if (controller.signal.aborted || log.endedAt !== null) return;
        live.current = follow({ session: id }, {
          after: () => log.head,
          pulse: setPulse,
          take: (messages) => {
            const isNew = takeIn(log, messages.map((each) => each.entry));
            if (isNew) setState({ log, size: log.size, done: true, error: null });
          },
        });
      },
      (error: unknown) => {
        if (!controller.signal.aborted) setState((before) => ({ ...before, error }));
      },
    );
    return () => {
      controller.abort();
      live.current?.stop();
      live.current = null;
    };
  }, [id, round]);
  return { ...state, pulse, retry: () => live.current?.now(), again: () => setRound((n) => n + 1) };
}

function takeIn(log: SessionLog, entries: (AuditEvent | null)[]): boolean {
  let changed = false;
  for (const event of entries) {
    // A repeat after a reconnection is known already; a gap would throw, and the follower asks again from the last event.
    if (event === null || event.seq <= log.head) continue;
    log.append(event);
    changed = true;
  }
  return changed;
}

function readAt(asked: string | null, head: number): number {
  return asked === null || !/^\d{1,15}$/.test(asked) ? head : Math.min(head, Number(asked));
}

/** The event that the page shows: the address says which, or the newest. */
export function useMoment(log: SessionLog | null, size: number): { at: number; past: boolean; move: (seq: number) => void; step: (by: number) => void } {
  const asked = place.value.query.get("at");
  const head = Math.max(0, size - 1);
  const at = log ? readAt(asked, head) : 0;
  const move = (seq: number): void => setQuery({ at: seq >= head ? null : String(Math.max(0, seq)) });
  // From where the address is now: keys come faster than the page is drawn.
  const step = (by: number): void => move(readAt(place.value.query.get("at"), head) + by);
  return { at, past: asked !== null && at < head, move, step };
}

export function titleOf(log: SessionLog | null, id: string): string {
  if (log?.title) return log.title;
  return log?.ontology.hypothesis_space_id ? `${log.ontology.hypothesis_space_id} session` : id;
}

export function SessionPage({ id, about }: { id: string; about: CaseAbout }): JSX.Element {
  const session = useSession(id);
  const { log, size } = session;
  lastSession.value = id;
  const title = titleOf(log, id);
  const now = Date.now();
  const chip = !log ? null : log.endedAt !== null ? `closed ${ago(log.time(log.endedAt), now)}` : `open since ${clock(log.time(0)).slice(0, 5)}`;
  return (
    <Page
      title={title}
      crumbs={
        <>
          <Link to="" class="f3 wide">Cases</Link>
          <span class="f3 wide" aria-hidden="true">/</span>
          <span class="mono f2 wide clip" title={id}>{about.name ?? id.slice(0, 8)}</span>
        </>
      }
      chips={<>{chip && <span class="chip wide">{chip}</span>}{listAbout(about).map((each) => <span key={each} class="chip wide">{each}</span>)}</>}
      status={<><Link class="btn ghost" to={`compare?a=${encodeURIComponent(id)}${log?.origin ? `&b=${encodeURIComponent(log.origin.session_id)}` : ""}`}><Icon of="compare" /><span class="wide">Compare</span><span class="sr"> this session with another</span></Link><LiveChip pulse={session.pulse} retry={session.retry} /></>}
    >
      {session.error !== null && !log ? (
        <Panel title="This session cannot be shown">
          <Failure error={session.error} retry={session.again} />
          <p class="pad"><Link to="" class="under">All cases</Link></p>
        </Panel>
      ) : log ? (
        <Body id={id} log={log} size={size} session={session} />
      ) : (
        <>
          <Panel><Skeleton height={104} /></Panel>
          <Panel title="Belief funnel"><Skeleton height={440} /></Panel>
        </>
      )}
    </Page>
  );
}

function Body({ id, log, size, session }: { id: string; log: SessionLog; size: number; session: Session }): JSX.Element {
  const { at, past, move, step } = useMoment(log, size);
  const [table, setTable] = useState(false);
  const [opened, setOpened] = useState<number | null>(null);
  const [extent, setExtent] = useExtent(at);
  const why = place.value.query.get("why");
  const named = place.value.query.get("at");
  const isNoEvent = named !== null && session.done && String(readAt(named, size - 1)) !== named;
  const verification = useVerification(id, log, size);
  const probes = useProbes(id, log, at, size);
  const ghosts = useGhosts(id, log);
  const stale = session.pulse?.state === "stale";
  useAnnouncement(log, size);
  useKeys({
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    "Shift+ArrowLeft": () => step(-10),
    "Shift+ArrowRight": () => step(10),
    Home: () => move(0),
    End: () => move(log.head),
    "+": () => setExtent(zoom(extent, at, log.head, 0.5)),
    "-": () => setExtent(zoom(extent, at, log.head, 2)),
    t: () => setTable((shown) => !shown),
    v: () => verification.run(),
    w: () => document.getElementById("causes")?.focus(),
    r: () => document.getElementById("record")?.click(),
    Escape: () => {
      setOpened(null);
      setQuery({ why: null });
    },
  });
  const selected = why ? (log.whenGone(why) >= 0 ? log.whenGone(why) : null) : opened;
  const broken = verification.verdict?.state === "broken" ? verification.verdict.seq : null;
  // What follows a bad event is not counted: the figures are of the last event that holds.
  const counted = broken === null ? at : Math.min(at, Math.max(0, broken - 1));
  return (
    <>
      {counted < at && (
        <div class="panel replay" role="alert">
          <Icon of="broken" tone="refused" />
          <span class="strong">The log is broken at event {broken}.</span>
          <span class="f2 clip">The figures are of event {counted}; nothing after it is counted.</span>
        </div>
      )}
      {isNoEvent && (
        <div class="panel replay" role="alert">
          <Icon of="warn" tone="owed" />
          <span class="grow wrap">The address names event <code>{named}</code>, which this case does not have. What is shown is event {at}.</span>
          <button type="button" class="btn" onClick={() => setQuery({ at: null })}>Show the newest</button>
        </div>
      )}
      {past && (
        <div class="panel replay" role="status">
          <Icon of="prev" />
          <span class="strong num">Event {at} of {log.head}, {clock(log.time(at))}</span>
          <span class="f2 clip">{tell(log, at)}</span>
          <span class="grow" />
          <button type="button" class="btn" onClick={() => move(log.head)}>Back to live <kbd>End</kbd></button>
        </div>
      )}
      <AnswerStrip id={id} log={log} at={counted} past={past} />
      <div class="cols">
        <div>
          <Panel
            class="instrument"
            title="Belief funnel"
            note={<FunnelKey ghosts={ghosts} />}
            actions={<>
              {extent && !table && <button type="button" class="btn num" onClick={() => setExtent(null)}>{`Events ${count(extent.first)} to ${count(extent.last)}: show all`}</button>}
              <button type="button" class="btn ghost" aria-pressed={table} onClick={() => setTable(!table)}>{table ? "Chart" : "Table"} <kbd>T</kbd></button>
            </>}
          >
            {table ? (
              <EventTable log={log} size={size} at={at} open={setOpened} />
            ) : (
              <BeliefFunnel log={log} size={size} at={at} selected={selected} broken={broken} fork={past || log.endedAt !== null ? [] : forkOf(probes.list)} ghosts={ghosts.curves} extent={extent} brush={setExtent} choose={move} open={setOpened} />
            )}
            {!session.done && <p class="note pad">{count(size)} events so far, loading</p>}
            <Player log={log} at={at} move={move} following={!past && session.pulse?.state === "live"} extent={table ? null : extent} />
          </Panel>
          <div class="two">
            <Causes id={id} log={log} size={size} at={counted} why={why} choose={(hypothesis) => setQuery({ why: hypothesis })} />
            <WhyRuledOut id={id} log={log} why={why} opened={opened} verdict={verification.verdict} />
          </div>
        </div>
        <div>
          <AskNext id={id} log={log} probes={probes} acting={!past && !stale && log.endedAt === null} />
          <Refused log={log} at={counted} open={setOpened} />
          <Verification verification={verification} log={log} id={id} />
        </div>
      </div>
    </>
  );
}

/** The events that the chart draws; null for all. They follow the shown event, once it is among them. */
function useExtent(at: number): [Extent | null, (extent: Extent | null) => void] {
  const [extent, setExtent] = useState<Extent | null>(null);
  const before = useRef(at);
  useLayoutEffect(() => {
    const was = before.current;
    before.current = at;
    if (extent && was >= extent.first && was <= extent.last) setExtent(moveTo(extent, at));
  }, [at]);
  return [extent, setExtent];
}

function forkOf(probes: Probe[] | null): { left: number; label: string }[] {
  const best = probes?.[0];
  return best ? best.answers.map((each) => ({ left: each.leaves, label: each.outcome_id })) : [];
}

/** An event in words. */
export function tell(log: SessionLog, seq: number): string {
  const source = log.sources[log.source.at(seq)]?.id ?? "";
  const subject = log.subjects[seq] ?? "";
  const refusal = log.refusals.find((each) => each.seq === seq);
  if (refusal) return `${source} · refused: ${refusal.what} ${refusal.id}: ${refusal.reason}`;
  const left = log.left.at(seq);
  switch (log.kinds[seq]) {
    case "declare":
      return `declared ${plural(log.universeSize, "cause")}`;
    case "eliminate":
      return `${source} · ${subject}: ${log.removed.at(seq) === 0 ? "nothing new" : `ruled out ${count(log.removed.at(seq))}, ${count(left)} left`}`;
    case "enter":
      return `entered ${subject}`;
    case "exit":
      return `left ${subject}`;
    case "conclude":
      return `concluded ${subject}`;
    default:
      return "closed the session";
  }
}

/** A sentence for screen readers when events come, at most one in five seconds. */
function useAnnouncement(log: SessionLog, size: number): void {
  const first = useRef(size);
  const last = useRef(0);
  useEffect(() => {
    if (size === first.current || Date.now() - last.current < 5000) return;
    last.current = Date.now();
    said.value = `Event ${log.head}: ${tell(log, log.head)}. ${plural(log.left.at(log.head), "cause")} left.`;
  }, [size]);
}

function FunnelKey({ ghosts }: { ghosts: Ghosts }): JSX.Element {
  return (
    <span class="key wide">
      <span><Icon of="refused" tone="refused" /> refused</span>
      <span><Icon of="lock" tone="owed" /> obligation</span>
      <span><svg class="g f2" viewBox="0 0 14 14" aria-hidden="true"><circle cx="7" cy="7" r="4" /></svg> nothing new</span>
      <span>thin line: that source alone</span>
      {ghosts.curves.map((each) => (
        <span key={each.name} title={`Bits left when the ${each.name} strategy asks, on average over all causes; its first probe stands at the first report, and so on`}>
          <svg class="funnel-key" viewBox="0 0 26 8" width="26" height="8" aria-hidden="true"><path class={`ghost ${each.name}`} d="M1 4H25" /></svg> {each.name}, mean
        </span>
      ))}
      {ghosts.missing && <span title={ghosts.missing}>{ghosts.curves.length > 0 ? "one reference curve takes too long" : "no reference curves"}</span>}
    </span>
  );
}

