// The keyboard map: pages register what a key does while they are shown.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { go, place } from "./router";

type Handlers = Record<string, (event: KeyboardEvent) => void>;

const stack: { current: Handlers }[] = [];
export const helpOpen = signal(false);
let awaitingPage = false;

/** What keys do while a component is shown. Of two that name a key, the one that was shown later has it. */
export function useKeys(handlers: Handlers): void {
  const entry = useRef(handlers);
  entry.current = handlers;
  // With what is drawn, not after it: a key may be pressed as soon as its button is seen.
  useLayoutEffect(() => {
    stack.push(entry);
    return () => {
      stack.splice(stack.indexOf(entry), 1);
    };
  }, []);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== "range");
}

function nameOf(event: KeyboardEvent): string {
  const name = event.key === " " ? "Space" : event.key;
  return event.shiftKey && name.length > 1 ? `Shift+${name}` : name;
}

addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  // An editor in a shadow root is its host from here.
  const target = event.composedPath()[0] ?? event.target;
  if (isTyping(target)) {
    if (event.key === "Escape") (target as HTMLElement).blur();
    return;
  }
  const name = nameOf(event);
  if (awaitingPage) {
    awaitingPage = false;
    const session = place.value.parts[0] === "cases" ? place.value.parts[1] : undefined;
    const below = (page: string): string => (session ? `cases/${encodeURIComponent(session)}/${page}` : "inbox");
    const pages: Record<string, string> = { c: "", ...(session ? { g: below("graph") } : {}), a: below("actions"), i: "inbox", p: "policy", m: "compare", l: "ledger" };
    if (name in pages) {
      event.preventDefault();
      go(pages[name]!);
      return;
    }
  }
  if (name === "g") {
    awaitingPage = true;
    return;
  }
  if (name === "?") {
    helpOpen.value = !helpOpen.value;
    return;
  }
  if (name === "Escape" && helpOpen.value) {
    helpOpen.value = false;
    return;
  }
  if (name === "Space" && target instanceof HTMLElement && /^(BUTTON|A|SUMMARY)$/.test(target.tagName)) return;
  for (const entry of [...stack].reverse()) {
    const handler = entry.current[name];
    if (handler) {
      event.preventDefault();
      handler(event);
      return;
    }
  }
});

const MAP: [string, string][] = [
  ["/", "find"],
  ["g then c g a i p m l", "go to cases, graph, actions, inbox, policy, compare, ledger"],
  ["j k Enter Esc", "move, open, back"],
  ["← → · Shift · Home End", "one event · ten · first, live"],
  ["Space · t · + −", "play · chart as table · closer, further"],
  ["w r v", "why · record · verify"],
  ["h f s + −", "graph: ruled-out nodes · all of it · symptom · zoom"],
  ["Alt+Enter", "policy file: write the fix that a finding offers"],
  ["a x", "approve, reject: focus the button; Enter confirms"],
  ["?", "this list"],
];

export function KeyHelp(): JSX.Element | null {
  if (!helpOpen.value) return null;
  return (
    <dialog class="panel help" open aria-label="Keys">
      <header>
        <h2>Keys</h2>
        <span class="grow" />
        <button type="button" class="btn ghost" onClick={() => (helpOpen.value = false)}>
          Close <kbd>Esc</kbd>
        </button>
      </header>
      <table>
        <tbody>
          {MAP.map(([keys, what]) => (
            <tr key={keys}>
              <td class="nowrap"><kbd>{keys}</kbd></td>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </dialog>
  );
}
