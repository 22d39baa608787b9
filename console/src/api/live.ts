// Server-sent events over fetch, so that the key goes in a header. Reconnects by itself from the last event it saw.

import { ApiError, send } from "./client";

export interface Pulse {
  /** `off`: the server does not offer a stream here, or not to this key any more. */
  state: "connecting" | "live" | "stale" | "off";
  /** When something was last heard, by this machine's clock. */
  heardAt: number;
  retryAt: number;
}

export interface Message {
  event: string;
  id: string | null;
  data: unknown;
}

const STALE_MS = 10_000;
const LONGEST_RETRY_MS = 30_000;
/** Refusals that pass: the request took too long, or there were too many. */
const TRANSIENT = [408, 429];

/** Splits a stream of text into messages. */
export class MessageReader {
  private rest = "";

  read(chunk: string): Message[] {
    const blocks = (this.rest + chunk).replaceAll("\r\n", "\n").split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(parseBlock).filter((each) => each !== null);
  }
}

function parseBlock(block: string): Message | null {
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
  return { event, id, data: JSON.parse(data.join("\n")) as unknown };
}

interface Follower {
  /** Where to go on: the last event that was taken in, by its number or by the stream's cursor. */
  after: () => number | string | null;
  take: (messages: Message[]) => void;
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
export function follow(path: string, follower: Follower): { stop: () => void; now: () => void } {
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

  const hear = (messages: Message[]): void => {
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
        if (await listen(path, follower.after(), signal, hear)) {
          say({ state: "off" });
          break;
        }
      } catch (error) {
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && !TRANSIENT.includes(error.status)) {
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

/** Listen until the connection ends; true where the server said that this key may no longer listen. */
async function listen(path: string, after: number | string | null, signal: AbortSignal, hear: (messages: Message[]) => void): Promise<boolean> {
  const response = await send(path, { query: { after }, headers: { accept: "text/event-stream" }, signal });
  hear([]);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const messages = new MessageReader();
  let waiting: Message[] = [];
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
        if (message.event === "end") ended = (message.data as { reason?: string } | null)?.reason === "permission_lost";
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
