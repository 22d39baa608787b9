// A session out of the server: whole where its ids fit in the page, else without ids.

import { ApiError, get } from "../api/client";
import { SessionLog, type AuditEvent } from "./log";

/** Universes above this stay on the server: their ids are paged, their events come without ids. */
export const MAX_IDS_HERE = 20_000;
/** So many eliminations of a large universe are counted one by one, which is quick; of more the analysis is asked. */
const MAX_COUNTED = 400;

const LIGHT = [
  "seq", "event_id", "event_hash", "verb", "ts", "outcome", "actor", "payload.source_id", "payload.observation_id",
  "payload.obligation_id", "payload.min_total_eliminations", "payload.conclusion_id", "payload.ontology",
  "payload.metadata", "payload.title", "payload.labels", "payload.kit", "payload.provider", "payload.policy", "payload.origin",
].map((name) => `events.${name}`).join(",");

interface AuditPage {
  events: AuditEvent[];
  next_cursor?: string | null;
}

async function readFirst(path: string, signal: AbortSignal): Promise<AuditEvent> {
  const page = await get<AuditPage>(`${path}/audit`, { limit: 1, fields: LIGHT }, signal);
  return page.events[0]!;
}

/** Load a session. `shown` is called as soon as there is something to draw, and after each page. */
export async function loadSession(id: string, signal: AbortSignal, shown: (log: SessionLog, done: boolean) => void): Promise<SessionLog> {
  const path = `v1/sessions/${encodeURIComponent(id)}`;
  const first = await readFirst(path, signal);
  const withIds = Number(first.outcome?.["universe_size"] ?? 0) <= MAX_IDS_HERE;
  const log = new SessionLog(withIds);
  if (withIds) await readPages(path, log, {}, signal, shown);
  else await readLight(path, log, signal);
  shown(log, true);
  return log;
}

async function readPages(path: string, log: SessionLog, query: Record<string, string>, signal: AbortSignal, shown: (log: SessionLog, done: boolean) => void): Promise<void> {
  let cursor: string | null = null;
  do {
    const page: AuditPage = await get(`${path}/audit`, { ...query, cursor }, signal);
    for (const event of page.events) log.append(event);
    cursor = page.next_cursor ?? null;
    if (cursor !== null) shown(log, false);
  } while (cursor !== null);
}

async function readLight(path: string, log: SessionLog, signal: AbortSignal): Promise<void> {
  const events = await readAll(path, { fields: LIGHT }, signal);
  const counts = await countLeft(path, events, signal);
  events.forEach((event) => log.append(event, counts.get(event.seq)));
}

/** What each elimination left. */
async function countLeft(path: string, events: AuditEvent[], signal: AbortSignal): Promise<Map<number, number>> {
  const wanted = events.filter((event) => event.verb === "ELIMINATE").map((event) => event.seq);
  if (wanted.length > MAX_COUNTED) {
    const { timeline } = await get<{ timeline: { seq: number; after: number }[] }>(`${path}/analysis`, { fields: "timeline.seq,timeline.after" }, signal);
    return new Map(timeline.map((each) => [each.seq, each.after]));
  }
  const counts = new Map<number, number>();
  for (let at = 0; at < wanted.length; at += 8) {
    const some = wanted.slice(at, at + 8);
    const answers = await Promise.all(some.map((seq) => get<{ n_survivors: number }>(path, { at: seq, fields: "n_survivors" }, signal)));
    answers.forEach((answer, n) => counts.set(some[n]!, answer.n_survivors));
  }
  return counts;
}

/** Every event of a session, and what each elimination left where ids stay on the server. */
export async function loadEvents(id: string, signal: AbortSignal): Promise<{ events: AuditEvent[]; counts: Map<number, number> | null }> {
  const path = `v1/sessions/${encodeURIComponent(id)}`;
  const first = await readFirst(path, signal);
  if (Number(first.outcome?.["universe_size"] ?? 0) > MAX_IDS_HERE) {
    const events = await readAll(path, { fields: LIGHT }, signal);
    return { events, counts: await countLeft(path, events, signal) };
  }
  return { events: await readAll(path, {}, signal), counts: null };
}

async function readAll(path: string, query: Record<string, string>, signal: AbortSignal): Promise<AuditEvent[]> {
  const events: AuditEvent[] = [];
  let cursor: string | null = null;
  do {
    const page: AuditPage = await get(`${path}/audit`, { ...query, cursor }, signal);
    for (const event of page.events) events.push(event);
    cursor = page.next_cursor ?? null;
  } while (cursor !== null);
  return events;
}

/** One event in full, with payload and hashes. */
export async function readEvent(id: string, log: SessionLog, seq: number): Promise<AuditEvent> {
  const path = `v1/sessions/${encodeURIComponent(id)}/audit`;
  const since = seq > 0 ? log.eventIds[seq - 1] : undefined;
  const page = await get<AuditPage>(path, { since_event_id: since, limit: 1 });
  const event = page.events[0];
  if (!event || event.seq !== seq) throw new ApiError(0, "NOT_FOUND", `event ${seq} is not in the answer`);
  return event;
}

