// Cards that do not move while a page is open: one that ends becomes a note in its place, new ones wait behind a chip.

import type { ComponentChildren, JSX } from "preact";
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "./format";
import { Icon } from "./icons";

export interface Held<T> {
  key: string;
  /** As it is now, or was when it ended. */
  row: T;
  isLive: boolean;
}

/** Keep every row where it was drawn first. `rows` is null until they are known. */
export function useHeld<T>(rows: T[] | null, keyOf: (row: T) => string): { held: Held<T>[]; chip: JSX.Element | null } {
  const order = useRef<Map<string, T>>(new Map());
  const [fresh, setFresh] = useState<string | null>(null);
  const now = new Map((rows ?? []).map((each) => [keyOf(each), each]));
  const known = order.current;
  for (const [key, row] of now) if (known.has(key)) known.set(key, row);
  // In an empty list nothing can move.
  if (known.size === 0) now.forEach((row, key) => known.set(key, row));
  const waiting = [...now.keys()].filter((key) => !known.has(key));
  useEffect(() => {
    if (fresh !== null) document.querySelector<HTMLElement>(`[data-held="${CSS.escape(fresh)}"] .card`)?.focus();
  }, [fresh]);
  const show = (): void => {
    for (const key of waiting) known.set(key, now.get(key)!);
    setFresh(waiting[0]!);
  };
  const chip = waiting.length === 0 ? null : <div class="fresh"><button type="button" class="btn" onClick={show}>{count(waiting.length)} new</button></div>;
  const held = [...known].map(([key, row]) => ({ key, row, isLive: rows === null || now.has(key) }));
  return { held, chip };
}

/** The place of one card, which never shrinks. */
export function Slot({ named, isLive, class: more = "", children }: { named: string; isLive: boolean; class?: string; children: ComponentChildren }): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const height = useRef(0);
  useEffect(() => {
    if (!isLive) return undefined;
    const observer = new ResizeObserver(() => {
      height.current = element.current?.offsetHeight ?? height.current;
    });
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, [isLive]);
  return (
    <div ref={element} class={more} data-held={named} style={isLive ? {} : { minHeight: `${height.current}px` }}>
      <Alone>{children}</Alone>
    </div>
  );
}

/** What cannot be drawn is said in its own place, and hides nothing else. */
export class Alone extends Component<{ children: ComponentChildren }, { problem: unknown }> {
  override state = { problem: null as unknown };

  static override getDerivedStateFromError(problem: unknown): { problem: unknown } {
    return { problem };
  }

  override render(): ComponentChildren {
    const { problem } = this.state;
    if (problem === null) return this.props.children;
    return (
      <div class="body failure" role="alert">
        <p class="strong"><Icon of="warn" tone="refused" /> This one cannot be shown.</p>
        <p class="f2">{problem instanceof Error ? problem.message : String(problem)}</p>
        <p class="f2">Read it with <code>cmbs inbox</code>.</p>
      </div>
    );
  }
}
