// A session out of the server: whole where its ids fit in the page, else without ids.

import { api, list, read, readPages, type Schemas } from "../api/client";
import { ApiError } from "../api/errors";
import { SessionLog, type AuditEvent } from "./log";

/** Universes above this stay on the server: their ids are paged, their events come without ids. */
export const MAX_IDS_HERE = 20_000;
/** So many eliminations of a large universe are counted one by one, which is quick; of more the analysis is asked. */
const MAX_COUNTED = 400;

const LIGHT = [
  "seq", "event_id", "event_hash", "verb", "ts", "outcome", "actor", "payload.source_id", "payload.observation_id",
  "payload.obligation_id", "payload.lift_obligation", "payload.min_total_eliminations", "payload.conclusion_id", "payload.ontology",
  "payload.title", "payload.provider", "payload.origin",
].map((name) => `events.${name}`).join(",");

interface Asked {
  limit?: number;
  since_event_id?: string | undefined;
  fields?: string;
}

/** How a page of the events of a session is asked for. */
function askEvents(id: string, asked: Asked, signal: AbortSignal | null = null) {
  return (cursor?: string) => {
    const params = { path: { session_id: id }, query: { ...asked, cursor } };
    return api.GET("/v1/sessions/{session_id}/audit", { params, signal });
  };
}

async function isLarge(id: string, signal: AbortSignal): Promise<boolean> {
  const { events } = await read(askEvents(id, { limit: 1, fields: LIGHT }, signal)());
  const first: AuditEvent = events[0]!;
  return (first.outcome?.universe_size ?? 0) > MAX_IDS_HERE;
}

/** Load a session. `shown` is called as soon as there is something to draw, and after each page. */
export async function loadSession(id: string, signal: AbortSignal, shown: (log: SessionLog, done: boolean) => void): Promise<SessionLog> {
  const withIds = !(await isLarge(id, signal));
  const log = new SessionLog(withIds);
  if (withIds) {
    for await (const page of readPages(askEvents(id, {}, signal))) {
      for (const event of page.events) log.append(event);
      if (page.next_cursor) shown(log, false);
    }
  } else {
    const { events, counts } = await loadLight(id, signal);
    events.forEach((event) => log.append(event, counts.get(event.seq)));
  }
  shown(log, true);
  return log;
}

/** The events of a session, and what each elimination left where ids stay on the server. */
interface Loaded<Counts> {
  events: AuditEvent[];
  counts: Counts;
}

async function loadLight(id: string, signal: AbortSignal): Promise<Loaded<Map<number, number>>> {
  const events = await list(askEvents(id, { fields: LIGHT }, signal), (page) => page.events, Infinity);
  return { events, counts: await countLeft(id, events, signal) };
}

async function countLeft(id: string, events: AuditEvent[], signal: AbortSignal): Promise<Map<number, number>> {
  const wanted = events.filter((event) => event.verb === "ELIMINATE").map((event) => event.seq);
  if (wanted.length > MAX_COUNTED) {
    const params = { path: { session_id: id }, query: { fields: "timeline.seq,timeline.after" } };
    const { timeline } = await read(api.GET("/v1/sessions/{session_id}/analysis", { params, signal }));
    return new Map(timeline.map((each) => [each.seq, each.after]));
  }
  const counts = new Map<number, number>();
  for (let at = 0; at < wanted.length; at += 8) {
    const some = wanted.slice(at, at + 8);
    const left = await Promise.all(some.map((seq) => countSurvivors(id, seq, signal)));
    left.forEach((n, which) => counts.set(some[which]!, n));
  }
  return counts;
}

/** How many causes a session has left, as of now or of an event. */
export async function countSurvivors(session_id: string, at?: number, signal?: AbortSignal): Promise<number> {
  const params = { path: { session_id }, query: { at: at?.toString(), fields: "n_survivors" } };
  return (await read(api.GET("/v1/sessions/{session_id}", { params, signal: signal ?? null }))).n_survivors;
}

export async function loadEvents(id: string, signal: AbortSignal): Promise<Loaded<Map<number, number> | null>> {
  if (await isLarge(id, signal)) return loadLight(id, signal);
  return { events: await list(askEvents(id, {}, signal), (page) => page.events, Infinity), counts: null };
}

/** One event in full, with payload and hashes. */
export async function readEvent(id: string, log: SessionLog, seq: number): Promise<Schemas["AuditEvent"]> {
  const since = seq > 0 ? log.eventIds[seq - 1] : undefined;
  const { events } = await read(askEvents(id, { since_event_id: since, limit: 1 })());
  const [event] = events;
  if (event?.seq === seq) return event;
  throw new ApiError({ code: "EVENT_MISSING", message: `event ${seq} is not in the answer`, details: null });
}
