// The address bar as a signal: what one would share is in the URL.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";

export interface Place {
  parts: string[];
  query: URLSearchParams;
}

/** A part of a path in plain text; as it is written where that says nothing. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function readPlace(url: URL | Location = location): Place {
  const base = new URL(document.baseURI).pathname;
  const path = url.pathname.startsWith(base) ? url.pathname.slice(base.length) : url.pathname.slice(1);
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(url.search) };
}

export const place = signal<Place>(readPlace());

// A slider moves at every frame, and browsers refuse more than some 200 changes of the address in ten seconds: the
// page follows at once, the address bar when nothing moves any more.
const WRITE_MS = 120;
let unwritten: URL | null = null;
let writing = 0;

function writeAddress(): void {
  clearTimeout(writing);
  writing = 0;
  if (unwritten) history.replaceState(null, "", unwritten.href);
  unwritten = null;
}

addEventListener("pagehide", writeAddress);
addEventListener("popstate", () => {
  unwritten = null;
  place.value = readPlace();
});

export function hrefOf(path: string): string {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

export function go(path: string, replace = false): void {
  writeAddress();
  history[replace ? "replaceState" : "pushState"](null, "", hrefOf(path));
  place.value = readPlace();
  if (!replace) scrollTo(0, 0);
}

/** Change one member of the query, without a new entry in the history. */
export function setQuery(changes: Record<string, string | null>): void {
  const url = unwritten ?? new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  unwritten = url;
  clearTimeout(writing);
  writing = setTimeout(writeAddress, WRITE_MS) as unknown as number;
  place.value = readPlace(url);
}

interface LinkProps {
  to: string;
  children: ComponentChildren;
  class?: string;
  title?: string;
  "aria-current"?: "page" | undefined;
  "aria-label"?: string;
}

export function Link({ to, children, ...rest }: LinkProps): JSX.Element {
  return (
    <a
      {...rest}
      href={hrefOf(to)}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}
