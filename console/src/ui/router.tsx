// The address bar as a signal: what one would share is in the URL.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";

export interface Place {
  parts: string[];
  query: URLSearchParams;
}

function readPlace(): Place {
  const base = new URL(document.baseURI).pathname;
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : location.pathname.slice(1);
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(location.search) };
}

export const place = signal<Place>(readPlace());

addEventListener("popstate", () => {
  place.value = readPlace();
});

export function hrefOf(path: string): string {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

export function go(path: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", hrefOf(path));
  place.value = readPlace();
  if (!replace) scrollTo(0, 0);
}

/** Change one member of the query, without a new entry in the history. */
export function setQuery(changes: Record<string, string | null>): void {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  history.replaceState(null, "", url.href);
  place.value = readPlace();
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
