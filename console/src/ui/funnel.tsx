// The belief funnel: one instrument of funnel, lanes and slider over one x axis.

import type { JSX } from "preact";
import { memo } from "preact/compat";
import { useMemo, useRef, useState } from "preact/hooks";
import { LANE_HEIGHT, layOut, scaleY, seqAt, spread, topBitsOf, type Extent, type Funnel, type Ghost } from "../model/funnel";
import type { SessionLog } from "../model/log";
import { clock, count } from "./format";
import { Mark } from "./icons";
import { useWidth } from "./parts";

const DASHES = ["", "", "7 4", "2 3", "9 3 2 3", "4 2", "1 3"];

export interface ForkEnd {
  left: number;
  label: string;
}

interface Props {
  log: SessionLog;
  size: number;
  at: number;
  selected: number | null;
  /** The first event that does not verify; what follows is hatched and not counted. */
  broken: number | null;
  fork?: ForkEnd[];
  /** Reference strategies, drawn behind everything else. */
  ghosts?: Ghost[];
  /** The events to draw; without one, all. */
  extent?: Extent | null;
  /** Told which events a person drew the pointer over. */
  brush?: (extent: Extent) => void;
  choose: (seq: number) => void;
  open: (seq: number) => void;
}

/** A pointer that moves less is a click. */
const MIN_BRUSH_PX = 8;

export function BeliefFunnel(props: Props): JSX.Element {
  const { log, at, extent } = props;
  const [element, width] = useWidth<HTMLDivElement>();
  const funnel = useMemo(() => (width > 0 ? layOut(log, width, props.ghosts, extent ?? undefined) : null), [log, props.size, width, props.ghosts, extent]);
  const [brushed, setBrushed] = useState<[number, number] | null>(null);
  const drew = useRef(false);
  const endBrush = (): void => {
    setBrushed(null);
    if (!funnel || !brushed || Math.abs(brushed[1] - brushed[0]) < MIN_BRUSH_PX) return;
    const [first, last] = [Math.min(...brushed), Math.max(...brushed)].map((x) => seqAt(funnel.frame, x, funnel.extent)) as [number, number];
    // A click follows, which is none.
    drew.current = true;
    if (last > first) props.brush?.({ first, last });
  };
  return (
    <div class="funnel" ref={element}>
      {funnel && (
        <svg
          width={width}
          height={funnel.frame.total + 8}
          role="img"
          aria-label={describe(log, at, props.ghosts, extent)}
          onPointerDown={(event) => {
            drew.current = false;
            const x = event.clientX - event.currentTarget.getBoundingClientRect().left;
            if (!props.brush || event.button !== 0 || x < funnel.frame.x0 - 8 || x > funnel.frame.x1 + 8) return;
            event.currentTarget.setPointerCapture(event.pointerId);
            setBrushed([x, x]);
          }}
          onPointerMove={(event) => brushed && setBrushed([brushed[0], Math.max(funnel.frame.x0, Math.min(funnel.frame.x1, event.clientX - event.currentTarget.getBoundingClientRect().left))])}
          onPointerUp={endBrush}
          onPointerCancel={() => setBrushed(null)}
          onClick={(event) => {
            if (drew.current) return;
            const box = event.currentTarget.getBoundingClientRect();
            const x = event.clientX - box.left;
            if (x < funnel.frame.x0 - 8 || x > funnel.frame.x1 + 8) return;
            const seq = seqAt(funnel.frame, x, funnel.extent);
            if (event.clientY - box.top > funnel.frame.lanesTop) props.open(seq);
            else props.choose(seq);
          }}
        >
          <Patterns />
          <Still funnel={funnel} log={log} />
          <Ends funnel={funnel} log={log} at={at} {...(props.fork ? { fork: props.fork } : {})} />
          <Moving funnel={funnel} {...props} />
          {brushed && <rect class="brush" x={Math.min(...brushed)} y={funnel.frame.top - 12} width={Math.abs(brushed[1] - brushed[0])} height={funnel.frame.axisY - 14 - funnel.frame.top + 12} />}
        </svg>
      )}
      {!funnel && <div style={{ height: "400px" }} />}
    </div>
  );
}

/** The chart as a sentence, for those who do not see it. */
export function describe(log: SessionLog, at: number, ghosts: Ghost[] = [], extent: Extent | null = null): string {
  const counts = log.countBySource(at);
  const who = log.sources
    .map((source, n) => ({ source, n: counts[n]! }))
    .filter((each) => each.n > 0)
    .map((each) => `${each.source.id} ruled out ${count(each.n)}`);
  const open = log.openObligations(at).map((each) => `obligation ${each.id} can be left at ${Math.max(0, each.startedAt - each.needed)} or fewer`);
  const refused = log.refusals.filter((each) => each.seq <= at).length;
  return [
    `Belief funnel. ${count(log.universeSize)} causes at event 0, ${count(log.left.at(at))} at event ${at}`,
    ...who,
    ...open,
    `${refused} requests were refused`,
    ...ghosts.map((each) => `the ${each.name} strategy would need ${each.bits.length - 1} reports at most`),
    ...(extent ? [`drawn from event ${extent.first} to ${extent.last}`] : []),
  ].join("; ");
}

function Patterns(): JSX.Element {
  return (
    <defs>
      <pattern id="tape" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="tape-ground" width="8" height="8" />
        <rect class="tape-stripe" width="3.5" height="8" />
      </pattern>
      <pattern id="tapemet" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="tape-ground met" width="8" height="8" />
        <rect class="tape-stripe met" width="3" height="8" />
      </pattern>
      <pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
        <rect class="hatch-stripe" width="2.5" height="7" />
      </pattern>
    </defs>
  );
}

/** What does not move with the slider; drawn again only when there are new events. */
const Still = memo(function Still({ funnel, log }: { funnel: Funnel; log: SessionLog }): JSX.Element {
  return (
    <>
      <Grid funnel={funnel} log={log} />
      <Lanes funnel={funnel} log={log} />
      <path class="area" d={funnel.area} />
      {!funnel.binned && funnel.drops.map((each) => (
        <line key={each.seq} class={`plumb s${log.sources[each.source]!.colour}`} x1={each.x} x2={each.x} y1={each.to} y2={laneY(funnel, each.source)} />
      ))}
      <Tapes funnel={funnel} log={log} />
      {funnel.ghosts.map((each) => <path key={each.name} class={`ghost ${each.name}`} d={each.path} />)}
      {funnel.alone.map((each) => (
        <path key={each.source} class={`alone s${log.sources[each.source]!.colour}`} d={each.path} stroke-dasharray={DASHES[log.sources[each.source]!.colour] ?? ""} />
      ))}
      <path class="together" d={funnel.line} />
      {funnel.drops.map((each) => (
        <line key={each.seq} class={`drop s${log.sources[each.source]!.colour}`} x1={each.x} x2={each.x} y1={each.from} y2={each.to} />
      ))}
      {!funnel.binned && !funnel.frame.narrow && labelsOfDrops(funnel).map((each) => (
        <text key={each.seq} class={`fall s${log.sources[each.source]!.colour}`} x={each.x + 6} y={(each.from + each.to) / 2 + 5}>
          −{count(each.removed)}
        </text>
      ))}
      {funnel.marks.map((each) => <LineMark key={each.seq} mark={each} log={log} />)}
    </>
  );
});

/** Figures of drops from 4 up that have room: of two that would touch, the larger one. */
function labelsOfDrops(funnel: Funnel): Funnel["drops"] {
  const chosen: Funnel["drops"] = [];
  for (const drop of [...funnel.drops].sort((a, b) => b.removed - a.removed)) {
    if (drop.removed < 4) break;
    if (chosen.every((each) => Math.abs(each.x - drop.x) > 40 || Math.abs(each.to - drop.to) > 14)) chosen.push(drop);
    if (chosen.length > 40) break;
  }
  return chosen;
}

function laneY(funnel: Funnel, lane: number): number {
  return funnel.frame.lanesTop + lane * LANE_HEIGHT + LANE_HEIGHT / 2;
}

function Grid({ funnel, log }: { funnel: Funnel; log: SessionLog }): JSX.Element {
  const { frame } = funnel;
  const right = frame.narrow ? frame.x1 : frame.width - 16;
  return (
    <>
      <text class="t2" x={frame.narrow ? 4 : frame.x0 - 18} y={14} text-anchor={frame.narrow ? "start" : "end"}>
        causes left, log scale
      </text>
      {funnel.ticks.map((tick) => (
        <g key={tick.count}>
          <line class={tick.count === 0 ? "rule zero" : "rule"} x1={frame.x0 - 10} x2={right} y1={tick.y} y2={tick.y} />
          <text class={tick.count === 0 ? "n contra" : "n t2"} x={frame.narrow ? frame.x0 - 16 : frame.x0 - 60} y={tick.y + 4} text-anchor="end">
            {tick.count > 9999 ? `2^${tick.bits}` : count(tick.count)}
          </text>
          {!frame.narrow && (
            <text class={tick.count === 0 ? "n contra" : "n"} x={frame.x0 - 18} y={tick.y + 4} text-anchor="end">
              {tick.count === 0 ? "none" : `${tick.bits} ${tick.bits === 1 ? "bit" : "bits"}`}
            </text>
          )}
        </g>
      ))}
      {frame.zeroY !== null && <path class="break" d={`M${frame.x0 - 14} ${frame.top + frame.height + 12}l8 -5m-8 9l8 -5`} />}
      {!frame.narrow && (
        <text x={frame.x0 - 18} y={frame.axisY} text-anchor="end">
          event
        </text>
      )}
      {funnel.labels.map((label, n) => (
        <g key={label.seq}>
          <text class="n t2" x={label.x} y={frame.axisY} text-anchor="middle">
            {label.seq}
          </text>
          {!frame.narrow && n < funnel.labels.length - 1 && (
            <text class="n" x={label.x + 4 + 4 * String(label.seq).length} y={frame.axisY}>
              {clock(log.time(label.seq)).slice(0, 5)}
            </text>
          )}
        </g>
      ))}
    </>
  );
}

function Lanes({ funnel, log }: { funnel: Funnel; log: SessionLog }): JSX.Element {
  const { frame } = funnel;
  return (
    <>
      {log.sources.map((source, lane) => {
        const y = laneY(funnel, lane);
        return (
          <g key={source.id}>
            {lane % 2 === 0 && <rect class="band" x={0} y={y - LANE_HEIGHT / 2} width={frame.width} height={LANE_HEIGHT} />}
            <line class="rule" x1={frame.x0 - 6} x2={frame.x1} y1={y} y2={y} />
            <rect class={`letter s${source.colour}`} x={frame.narrow ? 4 : 8} y={y - 9} width={18} height={18} rx={4} />
            <text class="letter-text" x={frame.narrow ? 13 : 17} y={y + 3.5} text-anchor="middle">
              {source.monogram}
            </text>
            {!frame.narrow && (
              <text class="t1 lane" x={33} y={y + 4}>
                {source.id.length > 17 ? `${source.id.slice(0, 16)}…` : source.id}
                <title>{source.id}</title>
              </text>
            )}
          </g>
        );
      })}
      {funnel.binned ? <Ticks funnel={funnel} log={log} /> : <LaneMarks funnel={funnel} log={log} />}
    </>
  );
}

/** Over 400 events: one stroke a column and lane, as one path a source. */
function Ticks({ funnel, log }: { funnel: Funnel; log: SessionLog }): JSX.Element {
  const paths = log.sources.map(() => "");
  const refused: { x: number; y: number; seq: number }[] = [];
  const seen = new Set<number>();
  for (let seq = funnel.extent.first; seq <= funnel.extent.last; seq++) {
    const lane = log.source.at(seq);
    const x = Math.round(funnel.x(seq));
    const key = x * 1000 + lane + (log.refused[seq] ? 500 : 0);
    if (seen.has(key)) continue;
    seen.add(key);
    const y = laneY(funnel, lane);
    if (log.refused[seq]) refused.push({ x, y, seq });
    else paths[lane] += `M${x} ${y - 5}v10`;
  }
  return (
    <>
      {paths.map((path, lane) => <path key={lane} class={`ticks s${log.sources[lane]!.colour}`} d={path} />)}
      {refused.map((each) => <Mark key={each.seq} of="refused" x={each.x} y={each.y} size={11} tone="refused" />)}
    </>
  );
}

function LaneMarks({ funnel, log }: { funnel: Funnel; log: SessionLog }): JSX.Element {
  const marks: JSX.Element[] = [];
  const { first, last } = funnel.extent;
  for (let seq = first; seq <= last; seq++) {
    const x = funnel.x(seq);
    const y = laneY(funnel, log.source.at(seq));
    marks.push(<LaneMark key={seq} log={log} seq={seq} x={x} y={y} tight={funnel.frame.narrow || last - first >= 60} />);
  }
  return <>{marks}</>;
}

function LaneMark({ log, seq, x, y, tight }: { log: SessionLog; seq: number; x: number; y: number; tight: boolean }): JSX.Element {
  const colour = log.sources[log.source.at(seq)]!.colour;
  const kind = log.kinds[seq];
  const ground = <rect class="ground" x={x - 8} y={y - 8} width={16} height={16} />;
  if (log.refused[seq]) return <>{ground}<Mark of="refused" x={x} y={y} size={13} tone="refused" /></>;
  if (kind === "enter") return <>{ground}<Mark of="lock" x={x} y={y} size={13} tone="owed" /></>;
  if (kind === "exit") return <>{ground}<Mark of="unlock" x={x} y={y} size={13} tone="owed" /></>;
  if (kind === "conclude") return <>{ground}<Mark of="check" x={x} y={y} size={13} tone="holds" /></>;
  if (kind === "terminate") return <>{ground}<Mark of="flag" x={x} y={y} size={13} tone="holds" /></>;
  if (kind === "declare") return <rect class="origin" x={x - 4} y={y - 4} width={8} height={8} />;
  const removed = log.removed.at(seq);
  if (removed === 0) return <circle class={`ring s${colour}`} cx={x} cy={y} r={4} />;
  if (log.left.at(seq) === 0) return <Mark of="contra" x={x} y={y} size={16} tone="contra" />;
  const wide = tight ? 6 : Math.max(9, 5 + 3.4 * String(removed).length);
  return (
    <>
      <rect class={`disc s${colour}`} x={x - wide} y={y - Math.min(9, wide)} width={2 * wide} height={2 * Math.min(9, wide)} rx={Math.min(9, wide)} />
      {!tight && (
        <text class="disc-text" x={x} y={y + 4} text-anchor="middle">
          {removed > 9999 ? "" : removed}
        </text>
      )}
    </>
  );
}

function Tapes({ funnel, log }: { funnel: Funnel; log: SessionLog }): JSX.Element {
  return (
    <>
      {funnel.tapes.map((tape) => {
        const width = Math.max(4, tape.x1 - tape.x0);
        const from = scaleY(funnel.frame, log.left.at(tape.entered), topBitsOf(log.universeSize));
        return (
          <g key={tape.id} class={tape.open ? "obligation open" : "obligation"}>
            {tape.entered >= funnel.extent.first && <line class="stem" x1={tape.x0} x2={tape.x0} y1={from} y2={tape.y} />}
            <rect x={tape.x0} y={tape.y} width={width} height={8} fill={tape.open ? "url(#tape)" : "url(#tapemet)"} />
            <line class="edge" x1={tape.x0} x2={tape.x1} y1={tape.y} y2={tape.y} />
            <Mark of={tape.open ? "lock" : "unlock"} x={tape.open ? tape.x0 : tape.x1 + 2} y={tape.y + 4} size={13} tone="owed" />
          </g>
        );
      })}
    </>
  );
}

function LineMark({ mark, log }: { mark: Funnel["marks"][number]; log: SessionLog }): JSX.Element {
  const colour = log.sources[mark.source]!.colour;
  if (mark.shape === "nothing") return <circle class={`ring s${colour}`} cx={mark.x} cy={mark.y} r={3.4} />;
  if (mark.shape === "contradiction") return <Mark of="contra" x={mark.x} y={mark.y} size={17} tone="contra" />;
  return (
    <>
      <circle class="ground" cx={mark.x} cy={mark.y} r={6.5} />
      <Mark of="refused" x={mark.x} y={mark.y} size={12} tone="refused" />
    </>
  );
}

/** Labels at the end of the lines, and what an answer to the best probe would leave. */
function Ends({ funnel, log, at, fork }: { funnel: Funnel; log: SessionLog; at: number; fork?: ForkEnd[] }): JSX.Element | null {
  const { frame } = funnel;
  if (at < log.head || funnel.extent.last < log.head) return null;
  const left = log.left.at(log.head);
  const end = scaleY(frame, left, topBitsOf(log.universeSize));
  const shown = frame.narrow ? [] : funnel.alone.slice(0, 6);
  const places = spread([...shown.map((each) => each.end), end], 15, frame.top + 4, (frame.zeroY ?? frame.top + frame.height) + 2);
  const counts = log.countBySource(at);
  return (
    <>
      {shown.map((each, n) => (
        <g key={each.source} class={`end s${log.sources[each.source]!.colour}`}>
          <text x={frame.x1 + 14} y={places[n]! + 4}>{clip(log.sources[each.source]!.name, 11)} alone</text>
          <text class="n" x={frame.width - 8} y={places[n]! + 4} text-anchor="end">{count(each.left)}</text>
        </g>
      ))}
      {!frame.narrow && (
        <g class={left === 0 ? "end zero" : "end both"}>
          <text class="b" x={frame.x1 + 14} y={places[shown.length]! + 4}>together</text>
          <text class="b n" x={frame.width - 8} y={places[shown.length]! + 4} text-anchor="end">{count(left)}</text>
        </g>
      )}
      {!frame.narrow && log.sources.map((source, lane) => (
        <text key={source.id} class="n t2" x={frame.x1 + 14} y={laneY(funnel, lane) + 4}>
          {counts[lane]! > 0 ? `ruled out ${count(counts[lane]!)}` : ""}
        </text>
      ))}
      {!frame.narrow && fork?.slice(0, 2).map((each) => {
        const y = scaleY(frame, each.left, topBitsOf(log.universeSize));
        return (
          <g key={each.label} class="fork">
            <line x1={frame.x1} y1={end} x2={frame.x1 + 10} y2={y} />
            <circle cx={frame.x1 + 10} cy={y} r={3} />
          </g>
        );
      })}
    </>
  );
}

function clip(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** What follows the slider: the future at a quarter, the line of now, the obligation's words, the selected event. */
function Moving({ funnel, log, at, selected, broken }: { funnel: Funnel } & Props): JSX.Element {
  const { frame } = funnel;
  const { first, last } = funnel.extent;
  const shown = at >= first && at <= last;
  const x = funnel.x(Math.max(first, at));
  const left = log.left.at(at);
  const y = scaleY(frame, left, topBitsOf(log.universeSize));
  const bottom = frame.axisY - 14;
  const past = at < log.head;
  const hatched = broken === null || broken > last ? null : funnel.x(Math.max(first, broken - 0.5));
  return (
    <>
      {at < last && <rect class="future" x={x} y={frame.top - 12} width={frame.width - x} height={bottom - frame.top + 12} />}
      {hatched !== null && <rect x={hatched} y={frame.top - 12} width={Math.max(6, frame.x1 - hatched + 10)} height={bottom - frame.top + 12} fill="url(#hatch)" />}
      {!frame.narrow && funnel.tapes.filter((each) => each.entered <= at).map((tape) => <TapeText key={tape.id} tape={tape} log={log} at={at} frame={frame} />)}
      {shown && <line class="now" x1={x} x2={x} y1={frame.top - 8} y2={bottom} />}
      {shown && <circle class={left === 0 ? "dot zero" : "dot"} cx={x} cy={y} r={6} />}
      {shown && past && (
        <text class={left === 0 ? "at zero" : "at"} x={x + 12} y={y + 5}>
          {count(left)} left
        </text>
      )}
      {selected !== null && selected >= first && selected <= last && (
        <circle class="selected" cx={funnel.x(selected)} cy={laneY(funnel, log.source.at(selected))} r={12} />
      )}
    </>
  );
}

function TapeText({ tape, log, at, frame }: { tape: Funnel["tapes"][number]; log: SessionLog; at: number; frame: Funnel["frame"] }): JSX.Element {
  const upTo = Math.min(at, log.obligations.find((each) => each.id === tape.id)?.left ?? at);
  const done = tape.startedAt - log.left.at(upTo);
  const met = !tape.open && upTo < at + 1 && (log.obligations.find((each) => each.id === tape.id)?.left ?? Infinity) <= at;
  const words =
    tape.target < 0
      ? `cannot be met: asks for ${count(tape.needed)}, ${count(tape.startedAt)} were left at entry`
      : met
        ? `${tape.id} met, ${count(done)} of ${count(tape.needed)}`
        : `opens at ${count(tape.target)} left: ${count(done)} of ${count(tape.needed)} ruled out, ${count(Math.max(0, tape.needed - done))} to go`;
  const room = frame.x1 - tape.x0;
  const atEnd = met && frame.x1 - tape.x1 > 260;
  // Below the tape, unless the lanes begin there.
  const beside = tape.y + 21 < frame.lanesTop - 4 ? tape.y + 21 : tape.y - 6;
  return (
    <text class="tape-text" x={atEnd ? tape.x1 + 12 : tape.x0 + 10} y={atEnd ? tape.y + 8 : beside}>
      {!met && room > 420 && <tspan class="b">{tape.id}</tspan>}
      <tspan dx={!met && room > 420 ? 8 : 0}>{words}</tspan>
    </text>
  );
}
