// Where everything of the belief funnel stands: pure geometry, in pixels. One x axis for funnel, lanes and slider.

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
  name: "greedy" | "optimal";
  bits: number[];
}

export interface Funnel {
  frame: Frame;
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

export function scaleX(frame: Frame, seq: number, last: number): number {
  return frame.x0 + (last <= 0 ? 0 : ((frame.x1 - frame.x0) * seq) / last);
}

export function seqAt(frame: Frame, x: number, last: number): number {
  const share = (x - frame.x0) / Math.max(1, frame.x1 - frame.x0);
  return Math.max(0, Math.min(last, Math.round(share * last)));
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

export function layOut(log: SessionLog, width: number, ghosts: Ghost[] = []): Funnel {
  const last = log.head;
  const frame = frameOf(log, width, log.sources.length);
  const topBits = topBitsOf(log.universeSize);
  const y = (left: number): number => scaleY(frame, left, topBits);
  const x = (seq: number): number => scaleX(frame, seq, last);
  const binned = log.size > MAX_DRAWN_ONE_BY_ONE;
  const steps = listSteps(log, x, y);
  const drawn = binned ? thinOut(steps) : steps;
  return {
    frame,
    ticks: listTicks(frame, topBits, y),
    labels: listLabels(last, x, frame),
    ...drawLine(log, drawn, x, y, frame),
    drops: binned ? drawn.filter((each) => each.to - each.from >= 3) : drawn,
    alone: drawAlone(log, x, y, frame),
    tapes: listTapes(log, x, y),
    marks: listMarks(log, x, y, binned),
    ghosts: ghosts.map((ghost) => ({ name: ghost.name, path: drawGhost(log, ghost.bits, x, y) })),
    binned,
  };
}

function listSteps(log: SessionLog, x: (seq: number) => number, y: (left: number) => number): Step[] {
  const steps: Step[] = [];
  for (let seq = 1; seq < log.size; seq++) {
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

function drawLine(log: SessionLog, steps: Step[], x: (seq: number) => number, y: (left: number) => number, frame: Frame): { line: string; area: string } {
  const start = y(log.universeSize);
  let line = `M${round(x(0))} ${round(start)}`;
  for (const step of steps) line += `H${round(step.x)}V${round(step.to)}`;
  line += `H${round(x(log.head))}`;
  const floor = frame.top + frame.height;
  return { line, area: `${line}V${floor}H${round(x(0))}Z` };
}

function drawAlone(log: SessionLog, x: (seq: number) => number, y: (left: number) => number, frame: Frame): Funnel["alone"] {
  const lines: Funnel["alone"] = [];
  log.sources.forEach((source, at) => {
    if (source.alone.length === 0) return;
    let path = `M${round(frame.x0)} ${round(y(log.universeSize))}`;
    let column = -1;
    for (const [seq, left] of source.alone) {
      const place = round(x(seq));
      path += Math.round(place) === column ? `V${round(y(left))}` : `H${place}V${round(y(left))}`;
      column = Math.round(place);
    }
    const left = source.alone[source.alone.length - 1]![1];
    lines.push({ source: at, path: `${path}H${round(x(log.head))}`, end: y(left), left });
  });
  return lines;
}

/** The k-th probe of a strategy stands at the k-th report; what it would ask beyond the last report is not drawn. */
function drawGhost(log: SessionLog, bits: number[], x: (seq: number) => number, y: (left: number) => number): string {
  let path = `M${round(x(0))} ${round(y(2 ** bits[0]!))}`;
  let asked = 0;
  for (let seq = 1; seq < log.size && asked < bits.length - 1; seq++) {
    if (log.kinds[seq] !== "eliminate") continue;
    asked += 1;
    path += `L${round(x(seq))} ${round(y(2 ** bits[asked]!))}`;
  }
  return path;
}

function listTapes(log: SessionLog, x: (seq: number) => number, y: (left: number) => number): Tape[] {
  return log.obligations.map((each) => {
    const target = each.startedAt - each.needed;
    return {
      x0: x(each.entered),
      x1: x(each.left ?? log.head),
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

function listMarks(log: SessionLog, x: (seq: number) => number, y: (left: number) => number, binned: boolean): Mark[] {
  const marks: Mark[] = [];
  const taken = new Set<number>();
  for (let seq = 1; seq < log.size; seq++) {
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

function listLabels(last: number, x: (seq: number) => number, frame: Frame): { x: number; seq: number }[] {
  const room = Math.max(2, Math.floor((frame.x1 - frame.x0) / (frame.narrow ? 60 : 130)));
  const rough = Math.max(1, last / room);
  const power = 10 ** Math.floor(Math.log10(rough));
  const every = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const labels: { x: number; seq: number }[] = [];
  for (let seq = 0; seq < last - every / 2; seq += every) labels.push({ seq, x: x(seq) });
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
