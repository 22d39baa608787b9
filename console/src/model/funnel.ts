// Where everything of the belief funnel stands: pure geometry, in pixels. One x axis for funnel, lanes and slider.

import type { Schemas } from "../api/client";
import type { SessionLog } from "./log";

export const LANE_HEIGHT = 23;
const MAX_DRAWN_ONE_BY_ONE = 400;

export interface Frame {
  width: number;
  narrow: boolean;
  x0: number;
  x1: number;
  top: number;
  height: number;
  lanesTop: number;
  axisY: number;
  total: number;
  /** y of zero causes left; null where it never came to that. */
  zeroY: number | null;
}

export interface Step {
  seq: number;
  x: number;
  from: number;
  to: number;
  source: number;
  removed: number;
}

export interface Tick {
  y: number;
  count: number;
  bits: number;
}

export interface Tape {
  x0: number;
  x1: number;
  y: number;
  id: string;
  open: boolean;
  /** How many may be left when it is left; below zero it cannot be met. */
  target: number;
  needed: number;
  entered: number;
  startedAt: number;
}

export interface Mark {
  seq: number;
  x: number;
  y: number;
  source: number;
  shape: "refused" | "nothing" | "contradiction";
}

/** A reference strategy: the bits left after each probe, from none on, on average over all causes. */
export interface Ghost {
  name: Exclude<Schemas["Method"], "exact"> | "optimal";
  bits: number[];
}

/** The events that are drawn, both ends included. */
export interface Extent {
  first: number;
  last: number;
}

export interface Funnel {
  frame: Frame;
  extent: Extent;
  /** Where an event stands. */
  x: (seq: number) => number;
  ticks: Tick[];
  labels: { x: number; seq: number }[];
  line: string;
  area: string;
  drops: Step[];
  alone: { source: number; path: string; end: number; left: number }[];
  tapes: Tape[];
  marks: Mark[];
  ghosts: { name: Ghost["name"]; path: string }[];
  binned: boolean;
}

export function scaleX(frame: Frame, seq: number, last: number, first = 0): number {
  return frame.x0 + (last <= first ? 0 : ((frame.x1 - frame.x0) * (seq - first)) / (last - first));
}

export function seqAt(frame: Frame, x: number, { first, last }: Extent): number {
  const share = (x - frame.x0) / Math.max(1, frame.x1 - frame.x0);
  return Math.max(first, Math.min(last, Math.round(first + share * (last - first))));
}

const MIN_DRAWN = 8;

/** As many events as before times `by`, around one of them; null for all. */
export function zoom(extent: Extent | null, at: number, head: number, by: number): Extent | null {
  const before = extent ? extent.last - extent.first : head;
  const size = Math.max(MIN_DRAWN, Math.round(before * by));
  if (size >= head) return null;
  const first = Math.max(0, Math.min(head - size, at - Math.floor(size / 2)));
  return { first, last: first + size };
}

/** The same number of events, moved just so far that one is among them. */
export function moveTo(extent: Extent, seq: number): Extent {
  const by = seq < extent.first ? seq - extent.first : seq > extent.last ? seq - extent.last : 0;
  return by === 0 ? extent : { first: extent.first + by, last: extent.last + by };
}

export function scaleY(frame: Frame, left: number, topBits: number): number {
  if (left <= 0) return frame.zeroY ?? frame.top + frame.height;
  return frame.top + frame.height * (1 - Math.log2(left) / topBits);
}

export function topBitsOf(universe: number): number {
  return Math.max(1, Math.ceil(Math.log2(Math.max(2, universe))));
}

function frameOf(log: SessionLog, width: number, lanes: number): Frame {
  const narrow = width < 640;
  const x0 = narrow ? 40 : 160;
  const x1 = Math.max(x0 + 60, width - (narrow ? 26 : 140));
  const top = 26;
  // On wide screens it grows along, or the line would hardly fall.
  const height = narrow ? 200 : Math.round(Math.min(420, Math.max(222, width * 0.12)));
  const needsZero = hasZero(log) || log.obligations.some((each) => each.startedAt - each.needed <= 0);
  const zeroY = needsZero ? top + height + 24 : null;
  const lanesTop = (zeroY ?? top + height) + 14;
  const axisY = lanesTop + lanes * LANE_HEIGHT + 14;
  return { width, narrow, x0, x1, top, height, lanesTop, axisY, total: axisY + 10, zeroY };
}

function hasZero(log: SessionLog): boolean {
  return log.size > 0 && log.left.at(log.head) === 0;
}

/** Without an extent, every event is drawn. */
export function layOut(log: SessionLog, width: number, ghosts: Ghost[] = [], extent: Extent = { first: 0, last: log.head }): Funnel {
  const { first, last } = extent;
  const frame = frameOf(log, width, log.sources.length);
  const topBits = topBitsOf(log.universeSize);
  const y = (left: number): number => scaleY(frame, left, topBits);
  const x = (seq: number): number => scaleX(frame, seq, last, first);
  const binned = last - first >= MAX_DRAWN_ONE_BY_ONE;
  const steps = listSteps(log, extent, x, y);
  const drawn = binned ? thinOut(steps) : steps;
  return {
    frame,
    extent,
    x,
    ticks: listTicks(frame, topBits, y),
    labels: listLabels(extent, x, frame),
    ...drawLine(log, extent, drawn, x, y, frame),
    drops: binned ? drawn.filter((each) => each.to - each.from >= 3) : drawn,
    alone: drawAlone(log, extent, x, y),
    tapes: listTapes(log, extent, x, y),
    marks: listMarks(log, extent, x, y, binned),
    ghosts: ghosts.map((ghost) => ({ name: ghost.name, path: drawGhost(log, extent, ghost.bits, x, y) })),
    binned,
  };
}

function listSteps(log: SessionLog, { first, last }: Extent, x: (seq: number) => number, y: (left: number) => number): Step[] {
  const steps: Step[] = [];
  for (let seq = first + 1; seq <= last; seq++) {
    const removed = log.removed.at(seq);
    if (removed <= 0) continue;
    const left = log.left.at(seq);
    steps.push({ seq, x: x(seq), from: y(left + removed), to: y(left), source: log.source.at(seq), removed });
  }
  return steps;
}

/** One step for each column of pixels: the whole fall within it, in the colour of the source that did most of it. */
function thinOut(steps: Step[]): Step[] {
  const columns = new Map<number, Step & { most: number }>();
  for (const step of steps) {
    const column = Math.round(step.x);
    const before = columns.get(column);
    if (!before) columns.set(column, { ...step, x: column, most: step.removed });
    else {
      before.to = step.to;
      before.removed += step.removed;
      if (step.removed > before.most) {
        before.most = step.removed;
        before.source = step.source;
        before.seq = step.seq;
      }
    }
  }
  return [...columns.values()];
}

function drawLine(log: SessionLog, { first, last }: Extent, steps: Step[], x: (seq: number) => number, y: (left: number) => number, frame: Frame): { line: string; area: string } {
  const start = y(first === 0 ? log.universeSize : log.left.at(first));
  let line = `M${round(x(first))} ${round(start)}`;
  for (const step of steps) line += `H${round(step.x)}V${round(step.to)}`;
  line += `H${round(x(last))}`;
  const floor = frame.top + frame.height;
  return { line, area: `${line}V${floor}H${round(x(first))}Z` };
}

function drawAlone(log: SessionLog, { first, last }: Extent, x: (seq: number) => number, y: (left: number) => number): Funnel["alone"] {
  const lines: Funnel["alone"] = [];
  log.sources.forEach((source, at) => {
    if (source.alone.length === 0) return;
    let left = source.alone.findLast(([seq]) => seq <= first)?.[1] ?? log.universeSize;
    let path = `M${round(x(first))} ${round(y(left))}`;
    let column = -1;
    for (const [seq, then] of source.alone) {
      if (seq <= first) continue;
      if (seq > last) break;
      left = then;
      const place = round(x(seq));
      path += Math.round(place) === column ? `V${round(y(left))}` : `H${place}V${round(y(left))}`;
      column = Math.round(place);
    }
    lines.push({ source: at, path: `${path}H${round(x(last))}`, end: y(left), left });
  });
  return lines;
}

/** The k-th probe of a strategy stands at the k-th report; what it would ask beyond the last report is not drawn. */
function drawGhost(log: SessionLog, { first, last }: Extent, bits: number[], x: (seq: number) => number, y: (left: number) => number): string {
  const place = (seq: number, asked: number): string => `${round(x(seq))} ${round(y(2 ** bits[asked]!))}`;
  let start = place(first, 0);
  let path = "";
  let asked = 0;
  for (let seq = 1; seq <= last && asked < bits.length - 1; seq++) {
    if (log.kinds[seq] !== "eliminate") continue;
    asked += 1;
    if (seq <= first) start = place(first, asked);
    else path += `L${place(seq, asked)}`;
  }
  return `M${start}${path}`;
}

function listTapes(log: SessionLog, { first, last }: Extent, x: (seq: number) => number, y: (left: number) => number): Tape[] {
  return log.obligations.filter((each) => each.entered <= last && (each.left ?? log.head) >= first).map((each) => {
    const target = each.startedAt - each.needed;
    return {
      x0: x(Math.max(first, each.entered)),
      x1: x(Math.min(last, each.left ?? log.head)),
      y: y(Math.max(0, target)),
      id: each.id,
      open: each.left === null,
      target,
      needed: each.needed,
      entered: each.entered,
      startedAt: each.startedAt,
    };
  });
}

function listMarks(log: SessionLog, { first, last }: Extent, x: (seq: number) => number, y: (left: number) => number, binned: boolean): Mark[] {
  const marks: Mark[] = [];
  const taken = new Set<number>();
  for (let seq = Math.max(1, first); seq <= last; seq++) {
    const place = { seq, x: x(seq), y: y(log.left.at(seq)), source: log.source.at(seq) };
    if (log.refused[seq]) {
      // Refusals are never binned away; those in one column share a mark.
      const column = Math.round(place.x);
      if (binned && taken.has(column)) continue;
      taken.add(column);
      marks.push({ ...place, shape: "refused" });
    } else if (log.kinds[seq] === "eliminate" && log.left.at(seq) === 0 && log.removed.at(seq) > 0) {
      marks.push({ ...place, shape: "contradiction" });
    } else if (!binned && log.kinds[seq] === "eliminate" && log.removed.at(seq) === 0) {
      marks.push({ ...place, shape: "nothing" });
    }
  }
  return marks;
}

function listTicks(frame: Frame, topBits: number, y: (left: number) => number): Tick[] {
  const every = Math.max(1, Math.ceil(topBits / 8));
  const ticks: Tick[] = [];
  for (let bits = 0; bits <= topBits; bits += every) ticks.push({ bits, count: 2 ** bits, y: y(2 ** bits) });
  if (frame.zeroY !== null) ticks.push({ bits: 0, count: 0, y: frame.zeroY });
  return ticks;
}

function listLabels({ first, last }: Extent, x: (seq: number) => number, frame: Frame): { x: number; seq: number }[] {
  const room = Math.max(2, Math.floor((frame.x1 - frame.x0) / (frame.narrow ? 60 : 130)));
  const rough = Math.max(1, (last - first) / room);
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const labels: { x: number; seq: number }[] = [];
  for (let seq = Math.ceil(first / every) * every; seq < last - every / 2; seq += every) labels.push({ seq, x: x(seq) });
  if (last >= 0) labels.push({ seq: last, x: x(last) });
  return labels;
}

/** Labels of one column, pushed apart so that none hides another. */
export function spread(wanted: number[], gap: number, least: number, most: number): number[] {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[a]! - wanted[b]!);
  const places = [...wanted];
  let floor = least;
  for (const at of order) {
    places[at] = Math.max(places[at]!, floor);
    floor = places[at]! + gap;
  }
  let ceiling = most;
  for (const at of [...order].reverse()) {
    places[at] = Math.min(places[at]!, ceiling);
    ceiling = places[at]! - gap;
  }
  return places;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
