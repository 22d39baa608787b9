// The static report of `cmbs analyse --html`: the components of the console over data that stands in the page itself.

import { render, type JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { compareTracks, listSources, trackOf, type Recorded } from "./model/compare";
import { SessionLog, type AuditEvent } from "./model/log";
import { EventTable } from "./pages/session/events";
import { Player } from "./pages/session/player";
import "./styles/tokens.css";
import "./styles/console.css";
import { FiguresPanel, RuledOut, WhereTheyPart } from "./ui/comparison";
import { count } from "./ui/format";
import { BeliefFunnel } from "./ui/funnel";
import { Icon } from "./ui/icons";
import { Panel, useWidth } from "./ui/parts";
import { Spark } from "./ui/spark";

interface Reported {
  session_id: string;
  row: string[];
  /** How many reports there are of each kind: those that ruled something out, and why others did not. */
  kinds: [string, number][];
  regret: number | null;
  luck: number | null;
  /** Null where the log is not in this page. */
  events: (AuditEvent & { left?: number })[] | null;
  with_ids: boolean;
}

interface Report {
  title: string;
  columns: string[];
  summary: [string, string][];
  sessions: Reported[];
}

const MOST_ROWS = 2000;

function readReport(): Report {
  const found = JSON.parse(document.getElementById("report")?.textContent ?? "{}") as Partial<Report>;
  return { title: "No analysis", columns: [], summary: [], sessions: [], ...found };
}

function recordedOf(session: Reported): Recorded | null {
  if (session.events === null) return null;
  const counts = session.with_ids ? null : new Map(session.events.filter((each) => each.left !== undefined).map((each) => [each.seq, each.left!]));
  return { events: session.events, counts };
}

function logOf(recorded: Recorded): SessionLog {
  const log = new SessionLog(recorded.counts === null);
  for (const event of recorded.events) log.append(event, recorded.counts?.get(event.seq));
  return log;
}

function ReportPage({ report }: { report: Report }): JSX.Element {
  const [a, setA] = useState(Math.max(0, report.sessions.findIndex((each) => each.events !== null)));
  const [b, setB] = useState<number | null>(null);
  const one = report.sessions[a];
  const other = b === null ? undefined : report.sessions[b];
  return (
    <div class="report">
      <header class="top"><h1>{report.title}</h1><span class="grow" /><ThemeButton /></header>
      <main class="stack">
        <Panel label="Together"><dl class="summary">{report.summary.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl></Panel>
        {one && <Chosen key={one.session_id} session={one} />}
        {one && other && a !== b && <Compared one={one} other={other} />}
        <Sessions report={report} a={a} b={b} chooseA={setA} chooseB={setB} />
        <div class="three">
          <Kinds sessions={report.sessions} />
          <SkillAndLuck sessions={report.sessions} />
        </div>
      </main>
    </div>
  );
}

function ThemeButton(): JSX.Element {
  const isDark = (): boolean => (document.documentElement.dataset["theme"] ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark")) === "dark";
  const [dark, setDark] = useState(isDark);
  return (
    <button type="button" class="btn icon ghost" aria-label={dark ? "Light colours" : "Dark colours"} onClick={() => { document.documentElement.dataset["theme"] = dark ? "light" : "dark"; setDark(!dark); }}>
      <Icon of="sun" />
    </button>
  );
}

function Chosen({ session }: { session: Reported }): JSX.Element {
  const log = useMemo(() => { const recorded = recordedOf(session); return recorded && logOf(recorded); }, [session]);
  const [at, setAt] = useState<number | null>(null);
  const [table, setTable] = useState(false);
  if (!log) return <Panel title={<span class="mono">{session.session_id}</span>}><p class="note pad">This log is not in this page: it is long, or one of many. Open it in the console.</p></Panel>;
  const moment = Math.min(at ?? log.head, log.head);
  const move = (seq: number): void => setAt(Math.max(0, seq));
  return (
    <Panel title="Belief funnel" note={<span class="mono">{log.title ?? session.session_id}</span>} actions={<button type="button" class="btn ghost" aria-pressed={table} onClick={() => setTable(!table)}>{table ? "Chart" : "Table"}</button>}>
      {table ? <EventTable log={log} size={log.size} at={moment} open={move} /> : <BeliefFunnel log={log} size={log.size} at={moment} selected={null} broken={null} choose={move} open={move} />}
      <Player log={log} at={moment} move={move} following={false} />
    </Panel>
  );
}

function Compared({ one, other }: { one: Reported; other: Reported }): JSX.Element | null {
  const sides = useMemo(() => {
    const [first, second] = [recordedOf(one), recordedOf(other)];
    if (!first || !second) return null;
    const [a, b] = [trackOf(first), trackOf(second)];
    return { a, b, nameA: one.session_id, nameB: other.session_id, found: compareTracks(a, b, "session"), sources: listSources(a, b) };
  }, [one, other]);
  if (!sides) return null;
  return (
    <>
      <WhereTheyPart {...sides} note="Drops are coloured by source." whole />
      <div class="three"><RuledOut {...sides} /><FiguresPanel {...sides} /></div>
    </>
  );
}

function trailOf(session: Reported): { trail: [number, number][]; head: number; universe: number; left: number } | null {
  const recorded = recordedOf(session);
  if (!recorded) return null;
  const track = trackOf(recorded);
  return { trail: track.stops.filter((stop) => stop.removed > 0).map((stop) => [stop.seq, stop.left]), head: track.stops.at(-1)?.seq ?? 0, universe: track.universeSize, left: track.left };
}

function Sessions({ report, a, b, chooseA, chooseB }: { report: Report; a: number; b: number | null; chooseA: (n: number) => void; chooseB: (n: number | null) => void }): JSX.Element {
  const [text, setText] = useState("");
  const trails = useMemo(() => report.sessions.map(trailOf), [report]);
  const wanted = text.trim().toLowerCase();
  const rows = report.sessions.map((session, n) => ({ session, n })).filter(({ session }) => session.row.join(" ").toLowerCase().includes(wanted));
  return (
    <Panel title="Sessions" note={`${count(rows.length)} of ${count(report.sessions.length)}; choose A to see one, and B to compare it with`} actions={<label class="field small"><Icon of="search" /><input type="search" aria-label="Find a session" placeholder="id, figure" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>}>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of sessions">
        <table class="sheet">
          <thead><tr><th scope="col">A</th><th scope="col">B</th>{report.columns.slice(0, 1).map((name) => <th key={name} scope="col" class="left">{name}</th>)}<th scope="col" class="left">bits left</th>{report.columns.slice(1).map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
          <tbody>
            {rows.slice(0, MOST_ROWS).map(({ session, n }) => {
              const trail = trails[n];
              const [id, ...figures] = session.row;
              return (
                <tr key={session.session_id} class={n === a ? "chosen" : ""}>
                  <td><button type="button" class="btn pick" aria-pressed={n === a} aria-label={`A: ${session.session_id}`} disabled={session.events === null} onClick={() => chooseA(n)}>{n === a ? "●" : "○"}</button></td>
                  <td><button type="button" class="btn pick" aria-pressed={n === b} aria-label={`B: ${session.session_id}`} disabled={session.events === null || n === a} onClick={() => chooseB(n === b ? null : n)}>{n === b ? "●" : "○"}</button></td>
                  <th scope="row" class="left mono">{id}</th>
                  <td class="left">{trail && <Spark {...trail} closed={false} />}</td>
                  {figures.map((figure, at) => <td key={at}>{figure}</td>)}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {rows.length > MOST_ROWS && <p class="note pad">The first {count(MOST_ROWS)} are listed.</p>}
    </Panel>
  );
}

const MOST_DRAWN = 60;

/** What the reports were: those that ruled something out, and why the others did not. */
function Kinds({ sessions }: { sessions: Reported[] }): JSX.Element {
  const names = sessions[0]?.kinds.map(([name]) => name) ?? [];
  const most = Math.max(1, ...sessions.map((each) => each.kinds.reduce((sum, [, n]) => sum + n, 0)));
  return (
    <Panel title="What the reports were" note={sessions.length > MOST_DRAWN ? `the first ${MOST_DRAWN} sessions` : ""}>
      <p class="legend pad">{names.map((name, n) => <span key={name}><i class={`dotmark k${n}`} />{name}</span>)}</p>
      <ul class="kinds">
        {sessions.slice(0, MOST_DRAWN).map((each) => {
          const total = each.kinds.reduce((sum, [, n]) => sum + n, 0);
          return (
            <li key={each.session_id}>
              <span class="mono clip" title={each.session_id}>{each.session_id}</span>
              <span class="bars" role="img" aria-label={each.kinds.map(([name, n]) => `${n} ${name}`).join(", ")} style={{ width: `${(100 * total) / most}%` }}>{each.kinds.map(([name, n], at) => n > 0 && <i key={name} class={`k${at}`} style={{ flexGrow: n }} />)}</span>
              <span class="num right">{count(total)}</span>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}

/** Probes lost by choices against probes saved by answers, where an optimum is known. */
function SkillAndLuck({ sessions }: { sessions: Reported[] }): JSX.Element | null {
  const [element, width] = useWidth<HTMLDivElement>();
  const known = sessions.filter((each) => each.regret !== null && each.luck !== null);
  if (known.length === 0) return null;
  const height = 220;
  const far = Math.max(1, ...known.map((each) => each.regret!));
  const wide = Math.max(1, ...known.map((each) => Math.abs(each.luck!)));
  const x = (luck: number): number => 40 + ((width - 60) * (luck + wide)) / (2 * wide);
  const y = (regret: number): number => 16 + ((height - 50) * regret) / far;
  return (
    <Panel title="Skill and luck" note="in probes">
      <div ref={element} class="pad scatter">
        {width > 0 && (
          <svg width={width} height={height} role="img" aria-label={known.slice(0, MOST_DRAWN).map((each) => `${each.session_id}: lost by choices ${each.regret!.toFixed(2)}, saved by answers ${each.luck!.toFixed(2)}`).join("; ")}>
            <line class="rule" x1={x(0)} x2={x(0)} y1={8} y2={height - 30} />
            <line class="rule" x1={40} x2={width - 20} y1={y(0)} y2={y(0)} />
            <text x={width - 20} y={11} text-anchor="end">↓ lost by choices, up to {far.toFixed(1)}</text>
            <text x={width - 20} y={height - 8} text-anchor="end">saved by answers →</text>
            {known.map((each) => <circle key={each.session_id} cx={x(each.luck!)} cy={y(each.regret!)} r={5}><title>{each.session_id}: regret {each.regret!.toFixed(2)}, luck {each.luck!.toFixed(2)}</title></circle>)}
          </svg>
        )}
      </div>
    </Panel>
  );
}

const report = readReport();
document.title = report.title;
render(<ReportPage report={report} />, document.getElementById("app")!);
