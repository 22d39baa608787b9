// What every page shares: panels, source chips, and the states in which there is nothing to show yet.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, findCode, findNext } from "../api/errors";
import type { Source } from "../model/log";
import { splitCode } from "./format";
import { Icon, type Shape } from "./icons";

export function Panel({ title, note, icon, tone, actions, children, label, class: more = "" }: {
  title?: ComponentChildren;
  note?: ComponentChildren;
  icon?: Shape;
  tone?: string;
  actions?: ComponentChildren;
  children?: ComponentChildren;
  label?: string;
  class?: string;
}): JSX.Element {
  return (
    <section class={`panel ${more}`} aria-label={label ?? (typeof title === "string" ? title : undefined)}>
      {title !== undefined && (
        <header>
          {icon && <Icon of={icon} tone={tone ?? ""} />}
          <h2>{title}</h2>
          {note !== undefined && <span class="note">{note}</span>}
          <span class="grow" />
          {actions}
        </header>
      )}
      {children}
    </section>
  );
}

export function Monogram({ source }: { source: Source | undefined }): JSX.Element {
  return (
    <span class={`mg s${source?.colour ?? 0}`} aria-hidden="true">
      {source?.monogram ?? "?"}
    </span>
  );
}

/** What went wrong, its code, and what to do; one panel fails alone. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }): JSX.Element {
  const known = error instanceof ApiError ? error : null;
  const next = findNext(error);
  const code = findCode(error);
  return (
    <div class="body failure" role="alert">
      <p class="strong">
        <Icon of={known?.error.code === "LEDGER_CORRUPT" ? "broken" : "warn"} tone="refused" /> <Message text={error instanceof Error ? error.message : String(error)} />
      </p>
      {next !== null && <p class="f2"><Message text={next} /></p>}
      {code !== null && <p class="mono f3">{code}</p>}
      {retry && (
        <button type="button" class="btn" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** A message of the server: what it quotes is shown as code. */
export function Message({ text }: { text: string }): JSX.Element {
  return <>{splitCode(text).map((piece, n) => (n % 2 ? <code key={n}>{piece}</code> : piece))}</>;
}

/** A command, with a button that copies it. */
export function ToCopy({ text }: { text: string }): JSX.Element {
  return (
    <>
      <pre class="args" tabIndex={0} aria-label="To copy">{text}</pre>
      <button type="button" class="btn" onClick={() => void navigator.clipboard.writeText(text)}>Copy</button>
    </>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="body empty">
      <p class="strong">{title}</p>
      {children}
    </div>
  );
}

/** Blocks of the final size, only after 200 ms: what comes at once does not flicker. */
export function Skeleton({ height }: { height: number }): JSX.Element {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return <div class={late ? "skeleton late" : "skeleton"} style={{ height: `${height}px` }} role="status" aria-label="Loading" />;
}

/** Resolves after a while, or rejects as soon as `signal` ends the wait. */
export function rest(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
  });
}

export interface Loaded<T> {
  value: T | null;
  error: unknown;
  loading: boolean;
  again: () => void;
}

/** Load something when its inputs change; the last value stays until the next one is there. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, inputs: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ value: T | null; error: unknown; loading: boolean }>({ value: null, error: null, loading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    load(controller.signal).then(
      (value) => {
        if (!controller.signal.aborted) setState({ value, error: null, loading: false });
      },
      (error: unknown) => {
        if (!controller.signal.aborted) setState((before) => ({ value: before.value, error, loading: false }));
      },
    );
    return () => controller.abort();
  }, [...inputs, round]);
  return { ...state, again: () => setRound((before) => before + 1) };
}

const TOLD_MS = 600;

/** Whether a figure changed just now: it is underlined for a moment, and nothing blinks. */
export function useChanged(value: number): boolean {
  const before = useRef(value);
  const [changed, setChanged] = useState(false);
  useEffect(() => {
    if (before.current === value) return undefined;
    before.current = value;
    setChanged(true);
    const timer = setTimeout(() => setChanged(false), TOLD_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return changed;
}

/** The width of an element, as it changes. */
export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return undefined;
    const observer = new ResizeObserver((entries) => setWidth(Math.round(entries[0]!.contentRect.width)));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

/** Rows of one height, of which only those in view are in the page. */
export function VirtualRows({ total, rowHeight, height, row, label, reach }: {
  total: number;
  rowHeight: number;
  height: number;
  row: (at: number) => JSX.Element;
  label: string;
  /** Told which rows are in view, to load what is missing. */
  reach?: (first: number, last: number) => void;
}): JSX.Element {
  const [top, setTop] = useState(0);
  const first = Math.max(0, Math.floor(top / rowHeight) - 4);
  const last = Math.min(total, Math.ceil((top + height) / rowHeight) + 4);
  useEffect(() => reach?.(first, last), [first, last, total]);
  const rows: JSX.Element[] = [];
  for (let at = first; at < last; at++) rows.push(row(at));
  // Browsers stop at some 16 million pixels; beyond, the bar stands for a share of the list.
  const tall = Math.min(total * rowHeight, 15_000_000);
  return (
    <div class="virtual" tabIndex={0} role="list" aria-label={label} style={{ maxHeight: `${height}px` }} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <div style={{ height: `${tall}px`, position: "relative" }}>
        <div style={{ transform: `translateY(${first * rowHeight}px)` }}>{rows}</div>
      </div>
    </div>
  );
}
