// That something was written: pages read again what they show of it.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Feed, type Pulse, follow } from "../api/live";

/** Many entries in a row are one piece of news. */
const QUIET_MS = 500;

export interface Following {
  pulse: Pulse | null;
  retry: () => void;
}

export interface News extends Following {
  /** Grows whenever something was written. */
  count: number;
}

/** Follow what is named; null follows nothing. */
export function useNews(feed: Feed | null): News {
  const [count, setCount] = useState(0);
  const [pulse, setPulse] = useState<Pulse | null>(null);
  const live = useRef<{ stop: () => void; now: () => void } | null>(null);
  useEffect(() => {
    if (feed === null) return undefined;
    let last: string | null = null;
    let timer = 0;
    live.current = follow(feed, {
      after: () => last,
      pulse: setPulse,
      take: (messages) => {
        // What was written between a page's first reading and the beginning of the stream is not in the stream.
        const begins = last === null && messages.length > 0;
        for (const each of messages) last = each.id ?? last;
        if (begins || messages.some((each) => each.entry !== null)) timer ||= window.setTimeout(() => {
          timer = 0;
          setCount((n) => n + 1);
        }, QUIET_MS);
      },
    });
    return () => {
      clearTimeout(timer);
      live.current?.stop();
      live.current = null;
    };
  }, [JSON.stringify(feed)]);
  return { count, pulse, retry: () => live.current?.now() };
}

/** Several that a page follows as one: where one of them does not follow, or not yet, that is what is said. */
export function joinNews(...all: Following[]): Following {
  const find = (state: Pulse["state"]): Following | undefined => all.find((each) => each.pulse?.state === state);
  const told = find("stale") ?? find("connecting") ?? all.find((each) => each.pulse !== null);
  return { pulse: told?.pulse ?? null, retry: () => all.forEach((each) => each.retry()) };
}
