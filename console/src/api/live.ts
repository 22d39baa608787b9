// Server-sent events over fetch, so that the key goes in a header. Reconnects by itself from the last event it saw.

import { AS_IT_IS, type Answered, type Schemas, api, readResponse } from "./client";
import { hasStatus, isRefused } from "./errors";
import type { paths } from "./schema";

type EveryQuery = NonNullable<paths["/v1/events"]["get"]["parameters"]["query"]>;
/** What is followed: a session, a space, or all that the key may read, less what the query leaves out. */
export type Feed = { session: string } | { space: string } | { every: EveryQuery };
type EntryOf<F> = F extends { session: string }
  ? Schemas["AuditEvent"]
  : F extends { space: string }
    ? Schemas["SpaceEvent"]
    : Schemas["StreamEntry"];

export interface Pulse {
  /** `off`: the server does not offer a stream here, or not to this key any more. */
  state: "connecting" | "live" | "stale" | "off";
  /** When something was last heard, by this machine's clock. */
  heardAt: number;
  retryAt: number;
}

export interface Message<Entry> {
  id: string | null;
  /** Null where it says something else than that an entry was written. */
  entry: Entry | null;
  /** Whether it ends the stream, because this key may no longer listen. */
  ends: boolean;
}

const STALE_MS = 10_000;
const LONGEST_RETRY_MS = 30_000;
/** Refusals that pass: the request took too long, or there were too many. */
const TRANSIENT = [408, 429];

/** Splits a stream of text into messages. */
class MessageReader<Entry> {
  private rest = "";

  read(chunk: string): Message<Entry>[] {
    const blocks = (this.rest + chunk).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map((each) => parseBlock<Entry>(each)).filter((each) => each !== null);
  }
}

function parseBlock<Entry>(block: string): Message<Entry> | null {
  let event = "message";
  let id: string | null = null;
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "event") event = value;
    else if (name === "id") id = value;
    else if (name === "data") data.push(value);
  }
  if (data.length === 0) return null;
  const said = JSON.parse(data.join("\n"));
  const end: Schemas["StreamEnd"] | null = event === "end" ? said : null;
  return { id, entry: event === "entry" ? said : null, ends: end?.reason === "permission_lost" };
}

interface Follower<Entry> {
  /** Where to go on: the last event that was taken in, by its number or by the stream's cursor. */
  after: () => number | string | null;
  take: (messages: Message<Entry>[]) => void;
  pulse: (pulse: Pulse) => void;
}

/** Resolves once the tab is looked at, or `signal` ends the wait. */
function whenVisible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

/**
 * Follow a stream until the returned function is called. Messages are handed over once a frame.
 *
 * A tab that is not looked at holds no connection: browsers open six to a server, for all tabs together. It goes on
 * from the last event when it is looked at again.
 */
export function follow<F extends Feed>(feed: F, follower: Follower<EntryOf<F>>): { stop: () => void; now: () => void } {
  const controller = new AbortController();
  const pulse: Pulse = { state: "connecting", heardAt: Date.now(), retryAt: 0 };
  let attempt = 0;
  let wake: () => void = () => undefined;
  let connection = new AbortController();
  const say = (changes: Partial<Pulse>): void => follower.pulse({ ...Object.assign(pulse, changes) });
  const watch = setInterval(() => {
    if (pulse.state === "live" && Date.now() - pulse.heardAt > STALE_MS) {
      say({ state: "stale", retryAt: Date.now() });
      connection.abort();
    }
  }, 1000);

  const rest = (): void => {
    if (document.hidden) connection.abort();
  };
  document.addEventListener("visibilitychange", rest);

  const hear = (messages: Message<EntryOf<F>>[]): void => {
    attempt = 0;
    say({ state: "live", heardAt: Date.now() });
    if (messages.length > 0) follower.take(messages);
  };

  const run = async (): Promise<void> => {
    while (!controller.signal.aborted) {
      await whenVisible(controller.signal);
      if (controller.signal.aborted) break;
      connection = new AbortController();
      const signal = AbortSignal.any([controller.signal, connection.signal]);
      try {
        if (await listen(feed, follower.after(), signal, hear)) {
          say({ state: "off" });
          break;
        }
      } catch (error) {
        if (isRefused(error) && !hasStatus(error, ...TRANSIENT)) {
          say({ state: "off" });
          break;
        }
      }
      if (controller.signal.aborted) break;
      if (document.hidden) continue;
      const delay = Math.min(LONGEST_RETRY_MS, 1000 * 2 ** attempt++);
      say({ state: "stale", retryAt: Date.now() + delay });
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, delay);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    clearInterval(watch);
  };
  say({});
  void run();
  return {
    stop: () => {
      controller.abort();
      clearInterval(watch);
      document.removeEventListener("visibilitychange", rest);
      wake();
    },
    now: () => wake(),
  };
}

/** The stream from an event on; null where the answer is empty. */
async function open(feed: Feed, after: number | string | null, signal: AbortSignal): Promise<Response["body"]> {
  const options = { ...AS_IT_IS, headers: { accept: "text/event-stream" }, signal };
  const ask = (): Promise<Answered> => {
    if ("every" in feed) {
      const query = { ...feed.every, after: after?.toString() };
      return api.GET("/v1/events", { params: { query }, ...options });
    }
    const query = { after: after === null ? undefined : Number(after) };
    if ("space" in feed) {
      const path = { space_id: feed.space };
      return api.GET("/v1/spaces/{space_id}/events", { params: { path, query }, ...options });
    }
    const path = { session_id: feed.session };
    return api.GET("/v1/sessions/{session_id}/events", { params: { path, query }, ...options });
  };
  return (await readResponse(ask())).body;
}

/** Listen until the connection ends; true where the server said that this key may no longer listen. */
async function listen<Entry>(
  feed: Feed,
  after: number | string | null,
  signal: AbortSignal,
  hear: (messages: Message<Entry>[]) => void,
): Promise<boolean> {
  const stream = await open(feed, after, signal);
  hear([]);
  if (stream === null) return false;
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  const messages = new MessageReader<Entry>();
  let waiting: Message<Entry>[] = [];
  let frame = 0;
  let ended = false;
  let problem: unknown = null;
  const flush = (): void => {
    frame = 0;
    const some = waiting;
    waiting = [];
    try {
      hear(some);
    } catch (error) {
      // What was sent does not follow what is known: this connection is of no more use.
      problem = error;
      void reader.cancel();
    }
  };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const message of messages.read(value)) {
        ended ||= message.ends;
        waiting.push(message);
      }
      frame ||= requestAnimationFrame(flush);
    }
  } finally {
    cancelAnimationFrame(frame);
  }
  if (waiting.length > 0 && problem === null) flush();
  if (problem !== null) throw problem;
  return ended;
}
