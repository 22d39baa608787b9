// Two tracks drawn over one axis, and what they share and do not: for the page and for the static report.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Comparison, type OnlyOne, type Stop, type Track, measure, tellStop } from "../model/compare";
import { scaleX, scaleY, spread, topBitsOf, type Frame } from "../model/funnel";
import type { Source } from "../model/log";
import { bits, count, plural, show, span } from "./format";
import { Icon, Mark } from "./icons";
import { Monogram, Panel, useWidth } from "./parts";

export interface Sides {
  a: Track;
  b: Track;
  nameA: string;
  nameB: string;
  found: Comparison;
  sources: Map<string, Source>;
}

const LANE = 26;
const MOST_MARKS = 400;

function frameOf(width: number, zero: boolean): Frame {
  const narrow = width < 640;
  const x0 = narrow ? 40 : 160;
  const top = 40;
  const height = narrow ? 200 : 250;
  const zeroY = zero ? top + height + 24 : null;
  const lanesTop = (zeroY ?? top + height) + 14;
  const axisY = lanesTop + 2 * LANE + 16;
  return { width, narrow, x0, x1: Math.max(x0 + 60, width - (narrow ? 20 : 150)), top, height, lanesTop, axisY, total: axisY + 10, zeroY };
}

/** `whole`: both are whole sessions, which can have events in common. */
export function WhereTheyPart(props: Sides & { note: string; whole: boolean }): JSX.Element {
  const [element, width] = useWidth<HTMLDivElement>();
  const { a, b, found, sources } = props;
  const who = [...sources.values()].filter((each) => [...a.stops, ...b.stops].some((stop) => stop.source === each.id && stop.kind === "eliminate"));
  return (
    <Panel title="Where they part" note={<span class="wide">{props.note}</span>} actions={<span class="legend wide">{who.slice(0, 6).map((each) => <span key={each.id} title={each.id}><Monogram source={each} />{each.name}</span>)}</span>}>
      <div class="funnel compare" ref={element}>
        {width > 0 ? <Chart {...props} width={width} /> : <div style={{ height: "400px" }} />}
      </div>
      <p class="sr">{describeParting(props)}</p>
      {props.whole && found.prefix === 0 && <p class="note pad">No event is the same in both.</p>}
    </Panel>
  );
}

/** Where two tracks part, as a sentence. */
export function describeParting({ a, b, nameA, nameB, found }: Sides): string {
  const end = `${nameA}: ${count(a.left)} of ${count(a.universeSize)} left. ${nameB}: ${count(b.left)} of ${count(b.universeSize)} left.`;
  if (found.prefix === 0) return end;
  const next = [a.stops[found.prefix], b.stops[found.prefix]];
  if (!next[0] && !next[1]) return `All ${plural(found.prefix, "event")} are the same. ${end}`;
  return `The first ${plural(found.prefix, "event")} are the same. ${nameA}: ${next[0] ? tellStop(next[0]) : "ends"}. ${nameB}: ${next[1] ? tellStop(next[1]) : "ends"}. ${end}`;
}

function Chart(props: Sides & { width: number }): JSX.Element {
  const { a, b, found, width } = props;
  const last = Math.max(1, a.stops.at(-1)?.seq ?? 0, b.stops.at(-1)?.seq ?? 0);
  const frame = frameOf(width, [a, b].some((each) => each.stops.some((stop) => stop.left === 0)));
  const topBits = topBitsOf(Math.max(a.universeSize, b.universeSize));
  const x = (seq: number): number => scaleX(frame, seq, last);
  const y = (left: number): number => scaleY(frame, left, topBits);
  const bottom = frame.lanesTop + 2 * LANE;
  const partsAt = found.prefix > 0 ? x(found.prefix - 0.5) : null;
  const wholly = found.prefix > 0 && found.prefix >= Math.max(a.stops.length, b.stops.length);
  const every = Math.max(1, Math.ceil(topBits / 8));
  const ticks = Array.from({ length: Math.floor(topBits / every) + 1 }, (_, n) => n * every);
  return (
    <svg width={width} height={frame.total} role="img" aria-label={`Causes left over events, on a log scale. ${describeParting(props)}`}>
      <text class="t2" x={frame.narrow ? 4 : frame.x0 - 18} y={16} text-anchor={frame.narrow ? "start" : "end"}>causes left, log scale</text>
      {partsAt !== null && <rect class="band" x={frame.x0 - 8} y={26} width={(wholly ? frame.x1 : partsAt) - frame.x0 + 8} height={bottom - 26} />}
      {ticks.map((tick) => (
        <g key={tick}>
          <line class="rule" x1={frame.x0 - 10} x2={frame.x1} y1={y(2 ** tick)} y2={y(2 ** tick)} />
          <text class="n t2" x={frame.narrow ? frame.x0 - 16 : frame.x0 - 58} y={y(2 ** tick) + 4} text-anchor="end">{tick > 13 ? `2^${tick}` : count(2 ** tick)}</text>
          {!frame.narrow && <text class="n" x={frame.x0 - 18} y={y(2 ** tick) + 4} text-anchor="end">{tick} {tick === 1 ? "bit" : "bits"}</text>}
        </g>
      ))}
      {frame.zeroY !== null && (
        <>
          <line class="rule zero" x1={frame.x0 - 10} x2={frame.x1} y1={frame.zeroY} y2={frame.zeroY} />
          <text class="n contra" x={frame.narrow ? frame.x0 - 16 : frame.x0 - 58} y={frame.zeroY + 4} text-anchor="end">0</text>
          {!frame.narrow && <text class="n contra" x={frame.x0 - 18} y={frame.zeroY + 4} text-anchor="end">none</text>}
          <path class="break" d={`M${frame.x0 - 14} ${frame.top + frame.height + 12}l8 -5m-8 9l8 -5`} />
        </>
      )}
      <Line track={a} of="a" {...{ frame, x, y }} sources={props.sources} />
      <Line track={b} of="b" {...{ frame, x, y }} sources={props.sources} />
      {partsAt !== null && !frame.narrow && <text class="t2" x={frame.x0} y={20}>{wholly ? `all ${plural(found.prefix, "event")} are the same` : `the same ${plural(found.prefix, "event")}`}</text>}
      {partsAt !== null && !wholly && (
        <>
          <line class="parting" x1={partsAt} x2={partsAt} y1={8} y2={bottom} />
          {!frame.narrow && <PartingText {...props} x={partsAt} />}
        </>
      )}
      <Lane track={a} letter="A" name={props.nameA} at={frame.lanesTop} {...{ frame, x }} sources={props.sources} />
      <Lane track={b} letter="B" name={props.nameB} at={frame.lanesTop + LANE} {...{ frame, x }} sources={props.sources} dashed />
      {!frame.narrow && <text x={frame.x0 - 18} y={frame.axisY} text-anchor="end">event</text>}
      {axisLabels(last, frame).map((seq) => <text key={seq} class="n t2" x={x(seq)} y={frame.axisY} text-anchor="middle">{seq}</text>)}
      <Ends {...props} {...{ frame, x, y }} />
    </svg>
  );
}

function axisLabels(last: number, frame: Frame): number[] {
  const rough = last / Math.max(2, Math.floor((frame.x1 - frame.x0) / 110));
  const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
  const every = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? 1;
  return Array.from({ length: Math.floor(last / every) + 1 }, (_, n) => n * every);
}

function PartingText({ a, b, found, x, width }: Sides & { x: number; width: number }): JSX.Element {
  const [one, other] = [a.stops[found.prefix], b.stops[found.prefix]];
  const clip = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  // About six pixels a letter.
  const room = Math.max(20, Math.floor((width - x - 30) / 6 / 2));
  return (
    <>
      <text class="t1 b" x={x + 8} y={14}>they part at #{found.prefix}</text>
      <text class="t2" x={x + 8} y={29}>A: {clip(one ? tellStop(one) : "ends", room)} · B: {clip(other ? tellStop(other) : "ends", room)}</text>
    </>
  );
}

interface Scales {
  frame: Frame;
  x: (seq: number) => number;
  y: (left: number) => number;
}

function Line({ track, of, x, y, sources, frame }: { track: Track; of: "a" | "b"; sources: Map<string, Source> } & Scales): JSX.Element {
  const drops = track.stops.filter((stop) => stop.removed > 0);
  let path = `M${x(0).toFixed(1)} ${y(track.universeSize).toFixed(1)}`;
  for (const stop of drops) path += `H${x(stop.seq).toFixed(1)}${stop.left > 0 ? "V" : "M"}${stop.left > 0 ? y(stop.left).toFixed(1) : `${x(stop.seq).toFixed(1)} ${y(0).toFixed(1)}`}`;
  if (track.left > 0) path += `H${x(track.stops.at(-1)?.seq ?? 0).toFixed(1)}`;
  const many = drops.length > MOST_MARKS;
  const labelled: Stop[] = [];
  for (const stop of [...drops].sort((p, q) => q.removed - p.removed)) {
    if (stop.removed < 4 || labelled.length > 20) break;
    if (labelled.every((each) => Math.abs(x(each.seq) - x(stop.seq)) > 44)) labelled.push(stop);
  }
  return (
    <>
      <path class={`track ${of}`} d={path} />
      {!many && drops.map((stop) => <line key={stop.seq} class={`drop s${sources.get(stop.source)?.colour ?? 0}`} stroke-dasharray={stop.left === 0 ? "3 3" : undefined} x1={x(stop.seq)} x2={x(stop.seq)} y1={y(stop.left + stop.removed)} y2={y(stop.left)} />)}
      {!many && !frame.narrow && labelled.map((stop) => <text key={stop.seq} class={`fall s${sources.get(stop.source)?.colour ?? 0}`} x={x(stop.seq) + 6} y={(y(stop.left + stop.removed) + y(stop.left)) / 2 + 5}>−{count(stop.removed)}</text>)}
      {track.stops.filter((stop) => stop.refused !== null).slice(0, MOST_MARKS).map((stop) => <g key={stop.seq}><circle class="ground" cx={x(stop.seq)} cy={y(stop.left)} r={6.5} /><Mark of="refused" x={x(stop.seq)} y={y(stop.left)} size={12} tone="refused" /></g>)}
      {drops.filter((stop) => stop.left === 0).map((stop) => <Mark key={stop.seq} of="contra" x={x(stop.seq)} y={y(0)} size={17} tone="contra" />)}
    </>
  );
}

function Lane({ track, letter, name, at, frame, x, sources, dashed = false }: { track: Track; letter: string; name: string; at: number; sources: Map<string, Source>; dashed?: boolean } & Omit<Scales, "y">): JSX.Element {
  const middle = at + LANE / 2;
  const last = track.stops.at(-1)?.seq ?? 0;
  const tight = frame.narrow || track.stops.length > 60;
  return (
    <g>
      <rect class="band" x={0} y={at} width={frame.width} height={LANE} />
      <text class="t1 b" x={frame.narrow ? 8 : 13} y={middle + 4}>{letter}</text>
      {!frame.narrow && <text class="t1 lane" x={30} y={middle + 4}>{name.length > 17 ? `${name.slice(0, 16)}…` : name}<title>{name}</title></text>}
      <line class={dashed ? "rail-line dashed" : "rail-line"} x1={x(0)} x2={x(last)} y1={middle} y2={middle} />
      {track.stops.slice(0, 2000).map((stop) => <LaneStop key={stop.seq} stop={stop} x={x(stop.seq)} y={middle} colour={sources.get(stop.source)?.colour ?? 0} tight={tight} />)}
    </g>
  );
}

function LaneStop({ stop, x, y, colour, tight }: { stop: Stop; x: number; y: number; colour: number; tight: boolean }): JSX.Element {
  const ground = <rect class="ground" x={x - 8} y={y - 8} width={16} height={16} />;
  if (stop.refused !== null) return <>{ground}<Mark of="refused" x={x} y={y} size={13} tone="refused" /></>;
  if (stop.kind === "declare") return <rect class="origin" x={x - 4} y={y - 4} width={8} height={8} />;
  if (stop.kind === "enter") return <>{ground}<Mark of="lock" x={x} y={y} size={13} tone="owed" /></>;
  if (stop.kind === "exit") return <>{ground}<Mark of="unlock" x={x} y={y} size={13} tone="owed" /></>;
  if (stop.kind === "conclude") return <>{ground}<Mark of="check" x={x} y={y} size={13} tone="holds" /></>;
  if (stop.kind === "terminate") return <>{ground}<Mark of="flag" x={x} y={y} size={13} tone="holds" /></>;
  if (stop.removed === 0) return <circle class={`ring s${colour}`} cx={x} cy={y} r={4} />;
  if (stop.left === 0) return <Mark of="contra" x={x} y={y} size={16} tone="contra" />;
  const wide = tight ? 5 : Math.max(9, 5 + 3.4 * String(stop.removed).length);
  const high = Math.min(9, wide);
  return (
    <>
      <rect class={`disc s${colour}`} x={x - wide} y={y - high} width={2 * wide} height={2 * high} rx={high} />
      {!tight && <text class="disc-text" x={x} y={y + 4} text-anchor="middle">{stop.removed > 9999 ? "" : stop.removed}</text>}
    </>
  );
}

function Ends({ a, b, frame, x, y }: Sides & Scales): JSX.Element | null {
  const tracks: [string, Track][] = [["A", a], ["B", b]];
  if (frame.narrow) return null;
  const ends = tracks.map(([, track]) => y(track.left));
  const places = spread(ends, 34, frame.top + 4, (frame.zeroY ?? frame.top + frame.height) - 8);
  return (
    <>
      {tracks.map(([letter, track], n) => {
        const lastX = x(track.stops.at(-1)?.seq ?? 0);
        return (
          <g key={letter}>
            {track.left > 0 && <circle class="dot" cx={lastX} cy={ends[n]} r={5} />}
            <text class={track.left === 0 ? "b contra" : "t1 b"} x={frame.x1 + 14} y={places[n]! + 1}>{letter}: {track.left === 0 ? "nothing left" : `${count(track.left)} left`}</text>
            <text class="t2" x={frame.x1 + 14} y={places[n]! + 16}>{track.left === 0 ? "contradiction" : `${bits(Math.log2(track.left))} bits to go`}</text>
          </g>
        );
      })}
    </>
  );
}

const FEW = 12;
const MOST_LISTED = 500;

/** What both ruled out, and what only one did. */
export function RuledOut({ a, b, found, sources }: Sides): JSX.Element {
  const either = found.both + found.onlyA.length + found.onlyB.length;
  return (
    <Panel title="Ruled out" note={a.universeSize === b.universeSize ? `of ${count(a.universeSize)}` : `of ${count(a.universeSize)} and ${count(b.universeSize)}`}>
      {found.shared === null && <p class="note pad">The ids of a universe this large stay on the server: only figures are compared.</p>}
      {found.shared !== null && (
        <>
          <div class="shares pad" role="img" aria-label={`${count(found.onlyA.length)} only by A, ${count(found.both)} by both, ${count(found.onlyB.length)} only by B`}>
            {found.onlyA.length > 0 && <span class="only" style={{ flexGrow: found.onlyA.length }}>{count(found.onlyA.length)}</span>}
            {found.both > 0 && <span class="both" style={{ flexGrow: found.both }}>both {count(found.both)}</span>}
            {found.onlyB.length > 0 && <span class="only dashed" style={{ flexGrow: found.onlyB.length }}>{count(found.onlyB.length)}</span>}
            {either === 0 && <span class="both grow">nothing yet</span>}
          </div>
          <Only letter="A" list={found.onlyA} sources={sources} attributes={a.attributes} />
          <Only letter="B" list={found.onlyB} sources={sources} attributes={b.attributes} />
        </>
      )}
    </Panel>
  );
}

function Only({ letter, list, sources, attributes }: { letter: string; list: OnlyOne[]; sources: Map<string, Source>; attributes: Track["attributes"] }): JSX.Element {
  const [all, setAll] = useState(false);
  const possible = list.filter((each) => each.possible).length;
  const other = letter === "A" ? "B" : "A";
  return (
    <>
      <p class="pad note">only {letter}: {list.length === 0 ? "none" : count(list.length)}{possible > 0 ? `, ${possible === list.length ? "" : `${count(possible)} of them `}still possible in ${other}` : ""}</p>
      <ul class="facts only-list" aria-label={`Only ${letter} ruled out`}>
        {list.slice(0, all ? MOST_LISTED : FEW).map((each) => (
          <li key={each.id}>
            <span class="clip"><Icon of={each.possible ? "alive" : "gone"} tone={each.possible ? "holds" : "gone-mark"} label={each.possible ? `possible in ${other}` : `not in the universe of ${other}`} /> <span class="mono" title={each.id}>{each.id}</span></span>
            <span class="clip f2">{[...new Set(Object.values(attributes[each.id] ?? {}).map(show))].join(" · ")}</span>
            <span class="f2 num nowrap"><Monogram source={sources.get(each.stop.source)} /> {letter} #{each.stop.seq}</span>
          </li>
        ))}
      </ul>
      {list.length > FEW && !all && <p class="pad"><button type="button" class="btn ghost" onClick={() => setAll(true)}>{list.length > MOST_LISTED ? `The first ${count(MOST_LISTED)}` : `All ${count(list.length)}`}</button></p>}
    </>
  );
}

/** The figures of both in one table. */
export function FiguresPanel({ a, b, rows = [] }: Sides & { rows?: [string, JSX.Element, JSX.Element][] }): JSX.Element {
  const [one, other] = [measure(a), measure(b)];
  const pair = (value: number | null): string => (value === null ? "none: nothing is left" : bits(value));
  const lines: [string, string, string, string?][] = [
    ["causes left", count(one.left), count(other.left), "left"],
    ["bits gained", pair(one.bits), pair(other.bits)],
    ["reports, of these nothing new", `${count(one.reports)}, ${count(one.nothingNew)}`, `${count(other.reports)}, ${count(other.nothingNew)}`],
    ["bits a report, before nothing was left", one.bitsEach === null ? "–" : bits(one.bitsEach), other.bitsEach === null ? "–" : bits(other.bitsEach)],
    ["refused", count(one.refused), count(other.refused)],
    ["sources that ruled something out", count(one.sources), count(other.sources)],
    ["obligations met, open", `${one.obligationsMet}, ${one.obligationsOpen}`, `${other.obligationsMet}, ${other.obligationsOpen}`],
    ["from first to last event", span(one.milliseconds), span(other.milliseconds)],
  ];
  const tone = (track: Track): string => (track.left === 0 ? "contra strong" : "holds strong");
  return (
    <Panel title="Figures">
      <table class="figures">
        <thead><tr><th scope="col"><span class="sr">Figure</span></th><th scope="col">A</th><th scope="col">B</th></tr></thead>
        <tbody>
          {lines.map(([name, first, second, left]) => (
            <tr key={name}><th scope="row">{name}</th><td class={left ? tone(a) : ""}>{first}</td><td class={left ? tone(b) : ""}>{second}</td></tr>
          ))}
          {rows.map(([name, first, second]) => <tr key={name}><th scope="row">{name}</th><td>{first}</td><td>{second}</td></tr>)}
        </tbody>
      </table>
    </Panel>
  );
}
