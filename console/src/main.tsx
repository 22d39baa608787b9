import { render, type ComponentChildren, type JSX } from "preact";
import { Suspense, lazy } from "preact/compat";
import { useEffect, useState } from "preact/hooks";
import { identity, may, needsKey, signIn } from "./api/client";
import { hasStatus } from "./api/errors";
import { ActionsPage } from "./pages/actions/index";
import { InboxPage, countWaiting } from "./pages/actions/inbox";
import { CasesPage } from "./pages/cases";
import { ComparePage } from "./pages/compare";
import { LedgerPage } from "./pages/ledger";
import { OneCase } from "./pages/case";
import { SessionPage } from "./pages/session/index";
import "./styles/tokens.css";
import "./styles/console.css";
import { Page, SignIn } from "./ui/frame";
import { Failure, Panel, Skeleton } from "./ui/parts";
import { Link, place } from "./ui/router";

// The editor and the graph are loaded when they are first shown.
const LazyGraph = lazy(() => import("./pages/graph/index").then((module) => ({ default: module.GraphPage })));
const LazyPolicy = lazy(() => import("./pages/policy/index").then((module) => ({ default: module.PolicyPage })));

// How often the mark at the rail is looked after on pages that do not follow the inbox.
const COUNT_MS = 15_000;

function Later({ page, children }: { page: string; children: ComponentChildren }): JSX.Element {
  return <Suspense fallback={<Page title=""><Panel label={page}><Skeleton height={400} /></Panel></Page>}>{children}</Suspense>;
}

function Route(): JSX.Element {
  const [first, second, third, fourth, fifth] = place.value.parts;
  if (first === undefined) return may("belief:read") ? <CasesPage /> : <InboxPage />;
  if (first === "inbox") return <InboxPage />;
  if (first === "policy" || (first === "spaces" && third === "policy")) return <Later page="policy"><LazyPolicy key={fifth} space={first === "spaces" ? second : undefined} change={fourth === "changes" ? fifth : undefined} /></Later>;
  if (first === "compare") return <ComparePage />;
  if (first === "ledger") return <LedgerPage stream={second} />;
  if (first === "cases" && second !== undefined && third === "actions") return <OneCase key={second} named={second}>{(one) => <ActionsPage id={one.session_id} name={one.name ?? one.session_id} />}</OneCase>;
  if (first === "cases" && second !== undefined && third === "graph") return <OneCase key={second} named={second}>{(one) => <Later page="graph"><LazyGraph id={one.session_id} /></Later>}</OneCase>;
  if (first === "cases" && second !== undefined) return <OneCase key={second} named={second}>{(one) => <SessionPage id={one.session_id} about={one} />}</OneCase>;
  return (
    <Page title="No such page">
      <Panel title="No such page"><p class="pad">Look for it in the <Link to="" class="under">list of cases</Link>.</p></Panel>
    </Page>
  );
}

function App(): JSX.Element | null {
  const [error, setError] = useState<unknown>(null);
  const start = (): void => {
    setError(null);
    signIn(null).catch((problem: unknown) => {
      if (!hasStatus(problem, 401)) setError(problem);
    });
  };
  useEffect(start, []);
  useEffect(() => {
    if (identity.value === null) return undefined;
    void countWaiting();
    const timer = setInterval(() => document.hidden || void countWaiting(), COUNT_MS);
    return () => clearInterval(timer);
  }, [identity.value]);
  if (needsKey.value) return <SignIn />;
  if (error !== null) return <main class="signin"><Panel title="The server did not answer"><Failure error={error} retry={start} /></Panel></main>;
  if (identity.value === null) return <main class="signin"><Skeleton height={200} /></main>;
  return <Route />;
}

render(<App />, document.getElementById("app")!);
