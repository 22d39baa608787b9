// Two tracks side by side: of sessions as they were, or of one source or agent as if it alone had reported. Pure.

import { type AuditEvent, type Kind, type Source, isRefused, kindOf, nextSource, sourceOf, subjectOf } from "./log";

export type By = "session" | "source" | "agent";

/** One event of a track. */
export interface Stop {
  seq: number;
  kind: Kind;
  source: string;
  subject: string;
  /** Why it was refused; null where it was not. */
  refused: string | null;
  removed: number;
  left: number;
  /** What two events must share to be the same. */
  key: string;
  at: number;
}

export interface Track {
  universeSize: number;
  /** The ids of the universe; null where they stay on the server. */
  ids: Set<string> | null;
  attributes: Record<string, Record<string, unknown>>;
  stops: Stop[];
  /** Where each id that is ruled out was. */
  gone: Map<string, Stop>;
  left: number;
}

export interface Recorded {
  events: AuditEvent[];
  counts: Map<number, number> | null;
}

/** The actor of an event as one word; null where none is on record. */
export function agentOf(event: AuditEvent): string | null {
  return event.actor ? `${event.actor.kind}:${event.actor.id}` : null;
}

/** Sources or agents that reported something, in the order of their first report. */
export function listReporters(recorded: Recorded, by: By): string[] {
  const names = recorded.events.filter((event) => kindOf(event) === "eliminate").map((event) => (by === "agent" ? agentOf(event) : sourceOf(event)));
  return [...new Set(names.filter((name) => name !== null))];
}

const MEMBERS = [
  "source_id", "observation_id", "eliminated", "probe", "obligation_id", "min_total_eliminations", "conclusion_id",
] as const;

function keyOf(event: AuditEvent): string {
  const { payload } = event;
  if (kindOf(event) === "declare") {
    return JSON.stringify([event.verb, payload.hypotheses ?? [event.outcome?.universe_size, payload.ontology]]);
  }
  return JSON.stringify([event.verb, isRefused(event), ...MEMBERS.map((name) => payload[name] ?? null)]);
}

/** A session as it was; or, with a reporter, what its reports alone would have left. */
export function trackOf(recorded: Recorded, by: By = "session", reporter: string | null = null): Track {
  const first = recorded.events[0];
  const universe = first?.payload.hypotheses ?? [];
  const ids = recorded.counts === null ? new Set(universe) : null;
  const universeSize = first?.outcome?.universe_size ?? universe.length;
  const attributes = first?.payload.hypothesis_attributes ?? {};
  const track: Track = { universeSize, ids, attributes, stops: [], gone: new Map(), left: universeSize };
  for (const event of recorded.events) {
    const kind = kindOf(event);
    const alone = by !== "session";
    if (alone && kind !== "declare" && (kind !== "eliminate" || (by === "agent" ? agentOf(event) : sourceOf(event)) !== reporter)) continue;
    const removed = kind === "eliminate" ? listRemoved(event, track, alone) : [];
    const counted = recorded.counts?.get(event.seq);
    const many = counted === undefined ? removed.length : track.left - counted;
    track.left -= many;
    const stop: Stop = {
      seq: event.seq,
      kind,
      source: sourceOf(event),
      subject: subjectOf(event, kind),
      refused: isRefused(event) ? (event.outcome?.reason ?? "refused") : null,
      removed: many,
      left: track.left,
      key: keyOf(event),
      at: Date.parse(event.ts),
    };
    for (const id of removed) track.gone.set(id, stop);
    track.stops.push(stop);
  }
  return track;
}

function listRemoved(event: AuditEvent, track: Track, alone: boolean): string[] {
  const named = alone ? (event.payload.eliminated ?? []) : (event.delta?.eliminated ?? []);
  return [...new Set(named)].filter((id) => track.ids?.has(id) && !track.gone.has(id));
}

export interface OnlyOne {
  id: string;
  stop: Stop;
  /** Whether the other universe has it, so that it is still possible there. */
  possible: boolean;
}

export interface Comparison {
  /** How many events, from the first on, are the same in both. */
  prefix: number;
  /** How many ids both universes have; null where ids stay on the server. */
  shared: number | null;
  both: number;
  onlyA: OnlyOne[];
  onlyB: OnlyOne[];
}

export function compareTracks(a: Track, b: Track, by: By): Comparison {
  let prefix = 0;
  if (by === "session") {
    while (prefix < Math.min(a.stops.length, b.stops.length) && a.stops[prefix]!.key === b.stops[prefix]!.key) prefix += 1;
  }
  if (a.ids === null || b.ids === null) return { prefix, shared: null, both: 0, onlyA: [], onlyB: [] };
  const only = (one: Track, other: Track): OnlyOne[] =>
    [...one.gone].filter(([id]) => !other.gone.has(id)).map(([id, stop]) => ({ id, stop, possible: other.ids!.has(id) })).sort((x, y) => x.stop.seq - y.stop.seq || (x.id < y.id ? -1 : 1));
  return {
    prefix,
    shared: [...a.ids].filter((id) => b.ids!.has(id)).length,
    both: [...a.gone.keys()].filter((id) => b.gone.has(id)).length,
    onlyA: only(a, b),
    onlyB: only(b, a),
  };
}

/** Every source of both, each with one colour. */
export function listSources(a: Track, b: Track): Map<string, Source> {
  const sources: Source[] = [];
  for (const id of new Set([...a.stops, ...b.stops].map((stop) => stop.source))) sources.push(nextSource(id, sources));
  return new Map(sources.map((each) => [each.id, each]));
}

export interface Figures {
  left: number;
  /** Bits gained; null where nothing is left, which no number of bits describes. */
  bits: number | null;
  reports: number;
  nothingNew: number;
  /** Bits for each report up to the last that left something; null where there was none. */
  bitsEach: number | null;
  refused: number;
  sources: number;
  obligationsMet: number;
  obligationsOpen: number;
  milliseconds: number;
}

export function measure(track: Track): Figures {
  const reports = track.stops.filter((stop) => stop.kind === "eliminate");
  const useful = reports.filter((stop) => stop.left > 0);
  const last = useful[useful.length - 1];
  const granted = track.stops.filter((stop) => stop.refused === null);
  const entered = new Set(granted.filter((stop) => stop.kind === "enter").map((stop) => stop.subject));
  const met = granted.filter((stop) => stop.kind === "exit" && entered.has(stop.subject)).length;
  return {
    left: track.left,
    bits: track.left > 0 && track.universeSize > 0 ? Math.log2(track.universeSize / track.left) : null,
    reports: reports.length,
    nothingNew: reports.filter((stop) => stop.removed === 0).length,
    bitsEach: last ? Math.log2(track.universeSize / last.left) / useful.length : null,
    refused: track.stops.length - granted.length,
    sources: new Set(reports.filter((stop) => stop.removed > 0).map((stop) => stop.source)).size,
    obligationsMet: met,
    obligationsOpen: entered.size - met,
    milliseconds: track.stops.length > 0 ? track.stops[track.stops.length - 1]!.at - track.stops[0]!.at : 0,
  };
}

/** An event of a track in words. */
export function tellStop(stop: Stop): string {
  if (stop.refused !== null) return `a refused ${stop.kind === "conclude" ? "conclusion" : stop.kind === "exit" ? "exit" : "termination"}`;
  switch (stop.kind) {
    case "eliminate":
      return `${stop.subject} of ${stop.source}, ${stop.removed === 0 ? "nothing new" : `−${stop.removed.toLocaleString("en-US")}`}`;
    case "enter":
      return `entered ${stop.subject}`;
    case "exit":
      return `left ${stop.subject}`;
    case "conclude":
      return `concluded ${stop.subject}`;
    case "terminate":
      return "closed";
    default:
      return "declared";
  }
}
