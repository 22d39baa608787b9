// The frame of every page: rail, top bar, sign-in, and the one live region.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { hasKey, identity, isOperator, lostKey, may, needsKey, signIn, signOut } from "../api/client";
import { hasStatus } from "../api/errors";
import type { Pulse } from "../api/live";
import { span } from "./format";
import { Icon, type Shape } from "./icons";
import { KeyHelp, useKeys } from "./keys";
import { Link, go, place } from "./router";

/** What waits for a person, for the mark at the rail; null until it is known. */
export const waiting = signal<number | null>(null);
/** A sentence for screen readers, said politely. */
export const said = signal("");
/** A sentence for screen readers that interrupts: something new waits for a person. */
export const urged = signal("");
/** The last session that was open: pages of the rail that belong to a session go to its. */
export const lastSession = signal<string | null>(null);

/** Whether a page has anything to show to this key: spaces show their policies to operators alone. */
function isShown(page: string): boolean {
  switch (page) {
    case "policy":
      return may("spaces:read") && isOperator();
    case "inbox":
      return isOperator() && (may("spaces:approve") || may("spaces:operate"));
    case "actions":
      return may("spaces:read");
    case "cases":
    case "graph":
    case "compare":
      return may("belief:read");
    default:
      return may("belief:read") || may("spaces:read");
  }
}

type Theme = "dark" | "light";

function currentTheme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "dark" || chosen === "light") return chosen;
  return matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
}

function Rail(): JSX.Element {
  const [first, , third] = place.value.parts;
  const session = place.value.parts[0] === "cases" ? place.value.parts[1] : lastSession.value;
  const below = (page: string, otherwise: string): string => (session ? `cases/${encodeURIComponent(session)}/${page}` : otherwise);
  const page = first === "cases" && third ? third : first === "spaces" && third === "policy" ? "policy" : (first ?? "cases");
  const items: [string, string, Shape, string][] = [
    ["cases", "", "cases", "Cases"],
    ...(session ? [["graph", below("graph", ""), "graph", "Graph"] as [string, string, Shape, string]] : []),
    ...(session || isShown("inbox") ? [["actions", below("actions", "inbox"), "actions", "Actions"] as [string, string, Shape, string]] : []),
    ["inbox", "inbox", "bell", "Inbox"],
    ["policy", "policy", "policy", "Policy"],
    ["compare", "compare", "compare", "Compare"],
    ["ledger", "ledger", "ledger", "Ledger"],
  ];
  return (
    <nav class="rail" aria-label="Main">
      <span class="brand">cmbs</span>
      {items.filter(([name]) => isShown(name)).map(([name, to, icon, label]) => (
        <Link key={name} to={to} aria-current={page === name ? "page" : undefined}>
          <Icon of={icon} />
          {label}
          {name === "inbox" && (waiting.value ?? 0) > 0 && (
            <span class="count">
              {waiting.value}
              <span class="sr"> waiting for a person</span>
            </span>
          )}
        </Link>
      ))}
      <Who />
    </nav>
  );
}

function Who(): JSX.Element {
  const name = identity.value ? identity.value.id : "sign in";
  return (
    <button type="button" class="end who" title={hasKey() ? "Forget the key" : "Sign in with a key"} onClick={() => (hasKey() ? signOut() : (needsKey.value = true))}>
      <Icon of="key" />
      <span class="clip">{name}</span>
    </button>
  );
}

export function Page({ title, crumbs, chips, status, children }: {
  title: string;
  crumbs?: ComponentChildren;
  chips?: ComponentChildren;
  status?: ComponentChildren;
  children: ComponentChildren;
}): JSX.Element {
  const [theme, setTheme] = useState<Theme>(currentTheme);
  useEffect(() => {
    document.title = title ? `${title} · cmbs` : "cmbs";
  }, [title]);
  return (
    <div class="app">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to content
      </a>
      <Rail />
      <div class="page">
        <header class="top">
          {crumbs}
          <h1>{title}</h1>
          {chips}
          <span class="grow" />
          {status}
          <Finder />
          <Link class="btn icon ghost narrow" to="" aria-label="Find a case"><Icon of="search" /></Link>
          <button
            type="button"
            class="btn icon ghost"
            aria-label={theme === "dark" ? "Light colours" : "Dark colours"}
            onClick={() => {
              const next = theme === "dark" ? "light" : "dark";
              document.documentElement.dataset["theme"] = next;
              setTheme(next);
            }}
          >
            <Icon of="sun" />
          </button>
        </header>
        <main class="main" id="main" tabIndex={-1}>
          {children}
        </main>
      </div>
      <KeyHelp />
      <div class="sr" role="status" aria-live="polite">
        {said.value}
      </div>
      <div class="sr" aria-live="assertive">
        {urged.value}
      </div>
    </div>
  );
}

function Finder(): JSX.Element {
  const [text, setText] = useState("");
  useKeys({ "/": () => document.getElementById("find")?.focus() });
  return (
    <form
      class="field find wide"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        go(`?text=${encodeURIComponent(text)}`);
      }}
    >
      <Icon of="search" />
      <input id="find" type="search" aria-label="Find a case" placeholder="Find a case" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <kbd>/</kbd>
    </form>
  );
}

/** Whether what is shown follows the server. */
export function LiveChip({ pulse, retry }: { pulse: Pulse | null; retry?: () => void }): JSX.Element | null {
  const [, tick] = useState(0);
  useEffect(() => {
    if (pulse?.state !== "stale") return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [pulse?.state]);
  if (!pulse) return null;
  if (pulse.state === "off") return <span class="chip" title="What is written from now on is shown when the page is loaded again">not live</span>;
  if (pulse.state === "connecting") return <span class="chip wide">connecting</span>;
  if (pulse.state === "live") {
    return (
      <span class="chip">
        <span class="live" />
        live
      </span>
    );
  }
  return (
    <button type="button" class="chip owed" onClick={retry} title="Try now">
      <Icon of="wait" /> stale, last heard {span(Date.now() - pulse.heardAt)} ago
    </button>
  );
}

export function SignIn(): JSX.Element {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");
  const submit = async (): Promise<void> => {
    try {
      await signIn(key.trim());
      setKey("");
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      setProblem(hasStatus(error, 401) ? "The server does not know this key, or it was revoked." : message);
    }
  };
  return (
    <main class="signin">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <header>
          <h1>Sign in with a key</h1>
        </header>
        <div class="body">
          {lostKey.value && <p class="owed" role="alert">The server does not accept the key of this page any more: it was revoked, or has expired. Sign in with another one.</p>}
          <p class="f2">It stays in this tab's memory, and goes nowhere but to this server.</p>
          <label class="field">
            <Icon of="key" />
            <span class="sr">Key</span>
            <input name="key" type="password" autocomplete="off" required placeholder="cmbs_…" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
          </label>
          {problem && (
            <p class="refused" role="alert">
              {problem}
            </p>
          )}
          <p class="row">
            <button type="submit" class="btn primary">
              Sign in
            </button>
            {identity.value && (
              <button type="button" class="btn ghost" onClick={() => (needsKey.value = false)}>
                Go on as {identity.value.id}
              </button>
            )}
          </p>
          <p class="f3">
            An operator makes one with <code>cmbs keys create</code>.
          </p>
        </div>
      </form>
    </main>
  );
}
