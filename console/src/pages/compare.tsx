// Two sessions, sources or agents: what they share, where they part, what only one ruled out, figures side by side.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Schemas, api, read } from "../api/client";
import { follow, type Pulse } from "../api/live";
import { type By, type Recorded, compareTracks, listReporters, listSources, trackOf } from "../model/compare";
import { loadEvents } from "../model/load";
import { nameOf } from "../model/log";
import { FiguresPanel, RuledOut, WhereTheyPart, type Sides } from "../ui/comparison";
import { LiveChip, Page } from "../ui/frame";
import { Icon } from "../ui/icons";
import { joinNews } from "../ui/news";
import { Empty, Failure, Monogram, Panel, Skeleton, useLoad } from "../ui/parts";
import { Link, place, setQuery } from "../ui/router";
import { verifyStream } from "../verify/client";
import type { Verdict } from "../verify/verify";

type Choice = Pick<Schemas["SessionItem"], "session_id" | "title" | "created_ts">;
type Report = Schemas["ReportItem"];

const MOST_SESSIONS = 100;

/** The newest sessions to choose from; those in the address are among them, however old they are. */
function useChoices(wanted: (string | null)[]): { list: Choice[]; error: unknown; loading: boolean } {
  const loaded = useLoad(async (signal) => {
    const params = { query: { order: "newest", limit: MOST_SESSIONS } as const };
    const { sessions } = await read(api.GET("/v1/sessions", { params, signal }));
    const missing = new Set(wanted.filter((id) => id !== null));
    for (const each of sessions) missing.delete(each.session_id);
    return [...sessions, ...[...missing].map((id): Choice => ({ session_id: id, title: null, created_ts: "" }))];
  }, wanted);
  return { list: loaded.value ?? [], error: loaded.error, loading: loaded.loading };
}

interface Followed {
  recorded: Recorded | null;
  size: number;
  error: unknown;
  pulse: Pulse | null;
  again: () => void;
  retry: () => void;
}

/** Every event of a session, and those that come. */
function useEvents(id: string | null): Followed {
  const [state, setState] = useState<{ recorded: Recorded | null; size: number; error: unknown }>({ recorded: null, size: 0, error: null });
  const [pulse, setPulse] = useState<Pulse | null>(null);
  const [round, setRound] = useState(0);
  const live = useRef<{ stop: () => void; now: () => void } | null>(null);
  useEffect(() => {
    const controller = new AbortController();
    setState({ recorded: null, size: 0, error: null });
    setPulse(null);
    if (id === null) return undefined;
    loadEvents(id, controller.signal).then(
      (recorded) => {
        if (controller.signal.aborted) return;
        setState({ recorded, size: recorded.events.length, error: null });
        const last = recorded.events.at(-1);
        // The reports of a large universe come without ids, and their counts are asked for once.
        const isEnded = last?.verb === "REQUEST_TERMINATION" && last.outcome?.approved === true;
        if (recorded.counts !== null || isEnded) return;
        live.current = follow({ session: id }, {
          after: () => recorded.events.at(-1)?.seq ?? null,
          pulse: setPulse,
          take: (messages) => {
            for (const { entry } of messages) {
              if (entry?.seq === recorded.events.length) recorded.events.push(entry);
            }
            setState({ recorded, size: recorded.events.length, error: null });
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
  return { ...state, pulse, again: () => setRound((n) => n + 1), retry: () => live.current?.now() };
}

function labelOf(choice: Choice): string {
  const short = choice.session_id.slice(0, 8);
  return choice.title ? `${choice.title} · ${short}` : short;
}

/** Two sessions by their titles, or by their ids where these are the same. */
function nameBoth(a: string, titleA: string, b: string, titleB: string): [string, string] {
  return titleA === titleB ? [a.slice(0, 8), b.slice(0, 8)] : [titleA, titleB];
}

const MODES: [By, string][] = [["session", "Sessions"], ["source", "Sources"], ["agent", "Agents"]];

export function ComparePage(): JSX.Element {
  const query = place.value.query;
  const asked = query.get("by");
  const by: By = asked === "source" || asked === "agent" ? asked : "session";
  const a = query.get("a");
  const b = query.get("b") ?? (by === "session" ? null : a);
  const choices = useChoices([a, b]);
  const one = useEvents(a);
  const same = b === a;
  const second = useEvents(same ? null : b);
  const other = same ? one : second;
  const namesA = useMemo(() => (one.recorded && by !== "session" ? listReporters(one.recorded, by) : []), [one.recorded, one.size, by]);
  const namesB = useMemo(() => (other.recorded && by !== "session" ? listReporters(other.recorded, by) : []), [other.recorded, other.size, by]);
  const ofA = query.get("of_a") ?? namesA[0] ?? null;
  const ofB = query.get("of_b") ?? (same ? namesB.find((each) => each !== ofA) : namesB[0]) ?? null;
  const titleOf = (id: string | null): string => {
    const found = choices.list.find((each) => each.session_id === id);
    return found?.title ?? id?.slice(0, 8) ?? "";
  };
  const sides = useMemo((): Sides | null => {
    if (!one.recorded || !other.recorded || (by !== "session" && (ofA === null || ofB === null))) return null;
    const [left, right] = [trackOf(one.recorded, by, ofA), trackOf(other.recorded, by, ofB)];
    const [nameA, nameB] = by === "session" ? nameBoth(a!, titleOf(a), b!, titleOf(b)) : [nameOf(ofA!), nameOf(ofB!)];
    return { a: left, b: right, nameA, nameB, found: compareTracks(left, right, by), sources: listSources(left, right) };
  }, [one.recorded, one.size, other.recorded, other.size, by, ofA, ofB, choices.list.length]);
  const error = one.error ?? other.error ?? choices.error;
  return (
    <Page title="Compare" status={<LiveChip {...joinNews(one, other)} />}>
      <div class="filters choices">
        <span class="seg" role="group" aria-label="What is compared">
          {MODES.map(([name, label]) => <button key={name} type="button" aria-pressed={by === name} onClick={() => setQuery({ by: name === "session" ? null : name, of_a: null, of_b: null })}>{label}</button>)}
        </span>
        <Picker letter="A" value={a} choices={choices.list} choose={(id) => setQuery({ a: id, of_a: null })} />
        {by !== "session" && <Reporter letter="A" by={by} names={namesA} value={ofA} choose={(name) => setQuery({ of_a: name })} />}
        <span class="f3">with</span>
        <Picker letter="B" value={b} choices={choices.list} choose={(id) => setQuery({ b: id, of_b: null })} />
        {by !== "session" && <Reporter letter="B" by={by} names={namesB} value={ofB} choose={(name) => setQuery({ of_b: name })} />}
        <button type="button" class="btn ghost" disabled={!a || !b} onClick={() => setQuery({ a: b, b: a, of_a: ofB, of_b: ofA })}>Swap</button>
      </div>
      {error !== null && <Panel title="They cannot be compared"><Failure error={error} retry={() => { one.again(); second.again(); }} /></Panel>}
      {error === null && (a === null || b === null) && !choices.loading && (
        <Panel><Empty title={choices.list.length < 2 ? "There are fewer than two sessions" : "Choose two sessions"}><p class="f2">The address holds the choice, and can be shared. Sources and agents of one session are compared as if each alone had reported.</p></Empty></Panel>
      )}
      {error === null && by !== "session" && one.recorded && other.recorded && !sides && (
        <Panel><Empty title={by === "agent" ? "No report names an agent" : "No source reported yet"}><p class="f2">{by === "agent" ? "Reports carry an agent where it was asked for with a key, or gave its name." : "A source is named by every report."}</p></Empty></Panel>
      )}
      {error === null && a !== null && b !== null && (!one.recorded || !other.recorded) && <Panel title="Where they part"><Skeleton height={440} /></Panel>}
      {sides && a !== null && b !== null && error === null && <Body sides={sides} by={by} a={a} b={b} />}
    </Page>
  );
}

function Picker({ letter, value, choices, choose }: { letter: "A" | "B"; value: string | null; choices: Choice[]; choose: (id: string) => void }): JSX.Element {
  return (
    <label class="field side-choice">
      <svg class={`swatch ${letter === "A" ? "a" : "b"}`} viewBox="0 0 24 4" aria-hidden="true"><path class={`track ${letter.toLowerCase()}`} d="M0 2H24" /></svg>
      <b>{letter}</b>
      <select aria-label={`Session ${letter}`} value={value ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
        {value === null && <option value="">choose</option>}
        {choices.map((each) => <option key={each.session_id} value={each.session_id}>{labelOf(each)}</option>)}
      </select>
    </label>
  );
}

function Reporter({ letter, by, names, value, choose }: { letter: string; by: By; names: string[]; value: string | null; choose: (name: string) => void }): JSX.Element {
  return (
    <select class="field reporter" aria-label={`${by === "source" ? "Source" : "Agent"} ${letter}`} value={value ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
      {names.map((name) => <option key={name} value={name}>{name}</option>)}
    </select>
  );
}

function noteOf(sides: Sides, by: By): string {
  if (by !== "session") return `What each ${by} alone would have left: the universe less every id that it named.`;
  if (sides.found.shared === null) return "Drops are coloured by source.";
  if (sides.found.shared === sides.a.universeSize && sides.found.shared === sides.b.universeSize) return "The same universe. Drops are coloured by source.";
  return `${sides.found.shared.toLocaleString("en-US")} causes are in both universes. Drops are coloured by source.`;
}

function Body({ sides, by, a, b }: { sides: Sides; by: By; a: string; b: string }): JSX.Element {
  const [verdicts, setVerdicts] = useState<[Verdict, Verdict] | null>(null);
  const [checking, setChecking] = useState(false);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => setVerdicts(null), [a, b]);
  const verify = async (): Promise<void> => {
    setChecking(true);
    setError(null);
    try {
      const check = (id: string): Promise<Verdict> => verifyStream(id, () => undefined);
      const first = await check(a);
      setVerdicts([first, a === b ? first : await check(b)]);
    } catch (problem) {
      setError(problem);
    } finally {
      setChecking(false);
    }
  };
  const show = (verdict: Verdict | undefined): JSX.Element =>
    !verdict ? <span class="f3">not yet</span>
    : verdict.state === "holds" ? <span class="holds"><Icon of="verified" /> verified</span>
    : verdict.state === "broken" ? <span class="refused"><Icon of="broken" /> broken at #{verdict.seq}</span>
    : <span class="f3">not checked</span>;
  const ended = by === "session" ? ([["A", a, sides.a], ["B", b, sides.b]] as const).filter(([, , track]) => track.left === 0) : [];
  return (
    <>
      <WhereTheyPart {...sides} note={noteOf(sides, by)} whole={by === "session"} />
      <div class="three">
        {ended.map(([letter, id]) => <Explained key={letter} letter={letter} id={id} sides={sides} />)}
        <RuledOut {...sides} />
        <div class="stack">
          <FiguresPanel {...sides} rows={[["log, recomputed in this browser", show(verdicts?.[0]), show(verdicts?.[1])]]} />
          {error !== null && <Failure error={error} />}
          <p class="row">
            <button type="button" class="btn" disabled={checking} onClick={() => void verify()}>{checking ? "Recomputing" : "Verify both"}</button>
            <Link class="btn ghost" to={`cases/${encodeURIComponent(a)}`}>Open A</Link>
            {a !== b && <Link class="btn ghost" to={`cases/${encodeURIComponent(b)}`}>Open B</Link>}
          </p>
        </div>
      </div>
    </>
  );
}

/** Where nothing is left: the causes that one report alone speaks against, and the report to ask again. */
function Explained({ letter, id, sides }: { letter: string; id: string; sides: Sides }): JSX.Element {
  const found = useLoad((signal) => {
    const params = { path: { session_id: id } };
    return read(api.GET("/v1/sessions/{session_id}/contradiction", { params, signal }));
  }, [id, letter === "A" ? sides.a.stops.length : sides.b.stops.length]);
  const value = found.value;
  const reports = new Map<number, { report: Report; causes: string[] }>();
  for (const each of value?.alone ?? []) {
    const entry = reports.get(each.report.seq) ?? { report: each.report, causes: [] };
    entry.causes.push(each.hypothesis_id);
    reports.set(each.report.seq, entry);
  }
  return (
    <Panel title={value && value.n_alone === 0 ? `${value.smallest} wrong answers would explain it` : "One wrong answer would explain it"} icon="contra" tone="contra" label={`Contradiction of ${letter}`}>
      {found.error !== null && <Failure error={found.error} retry={found.again} />}
      {!value && found.loading && <Skeleton height={120} />}
      {value && (
        <>
          <p class="pad f2 small">{value.n_alone === 0 ? `Every cause is spoken against by more than one report of ${letter}.` : `Causes that a single report of ${letter} speaks against. If the universe holds the cause and one answer was wrong, it is one of these.`}</p>
          <ul class="facts only-list">
            {[...reports.values()].sort((x, y) => x.causes.length - y.causes.length || x.report.seq - y.report.seq).map(({ report, causes }) => (
              <li key={report.seq}>
                <span class="clip"><Monogram source={sides.sources.get(report.source_id)} /> <b class="num">#{report.seq}</b> <span class="mono" title={report.observation_id}>{report.probe_id ?? report.observation_id}</span></span>
                <span class="f2 clip mono" title={causes.join(", ")}>{causes.join(", ")}</span>
                <Link class="under f2" to={`cases/${encodeURIComponent(id)}?at=${report.seq}`}>look</Link>
              </li>
            ))}
          </ul>
        </>
      )}
    </Panel>
  );
}
