// What waits for a person: approvals, executions in doubt, changes of policy.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { api, identity, may, mayOperate, mayWithdraw } from "../../api/client";
import { count, plural, short, span } from "../../ui/format";
import { LiveChip, Page, urged, waiting } from "../../ui/frame";
import { useFresh } from "../../ui/fresh";
import { Icon } from "../../ui/icons";
import { useKeys } from "../../ui/keys";
import { joinNews, useNews } from "../../ui/news";
import { Empty, Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link, place, setQuery } from "../../ui/router";
import type { Approval, Asked, Execution, PolicyChange, Waiting } from "./model";
import { EVERY_SPACE, onlyOnce, readAsked, readInbox, reportCall, settle, withdraw } from "./model";

const announced = new Set<string>();

/** Everything that waits: for the mark at the rail, and each approval once for screen readers. */
export function noteWaiting(items: Waiting[]): void {
  waiting.value = items.length;
  const fresh = items.filter((each) => each.approval && !announced.has(`${each.space_id}/${each.id}`));
  if (fresh.length === 0) return;
  for (const each of fresh) announced.add(`${each.space_id}/${each.id}`);
  const [first] = fresh;
  urged.value = `Waits for you: approval of ${first!.approval!.tool_id ?? "a change of state"}${fresh.length > 1 ? `, and ${plural(fresh.length - 1, "more approval")}` : ""}.`;
}

/** Look how much waits, for the mark at the rail. Without an answer the mark stays as it was. */
export async function countWaiting(): Promise<void> {
  try {
    noteWaiting(await readInbox());
  } catch {
    // The page that asks for more says what is wrong.
  }
}

function keyOf(item: Waiting): string {
  return `${item.space_id}/${item.kind}/${item.id}`;
}

/** `belief` grows whenever something was written to a session that cards are about; `tellSession` says which those are. */
interface Believed {
  belief: number;
  tellSession?: (session: string) => void;
}

function Card({ item, changed, ...believed }: { item: Waiting; changed: () => void } & Believed): JSX.Element {
  const space = item.space_id;
  if (item.approval) return <ApprovalCard item={item} approval={item.approval} changed={changed} {...believed} />;
  if (item.execution) return <DoubtCard space={space} execution={item.execution} changed={changed} />;
  if (item.policy_change) return <ChangeCard space={space} change={item.policy_change} changed={changed} />;
  return <SecondCard item={item} changed={changed} />;
}

function useInboxKeys(): void {
  // Of the card that has the focus, else of the first.
  const focus = (what: string): void => (document.activeElement?.closest(".card")?.querySelector<HTMLElement>(what) ?? document.querySelector<HTMLElement>(what))?.focus();
  useKeys({ a: () => focus("[data-approve]"), x: () => focus("[data-reject]"), j: () => moveCard(1), k: () => moveCard(-1) });
}

/** Cards whose buttons act; `stale` turns all of them off, since what they show may not be so any more. */
export function Cards({ stale, children }: { stale: boolean; children: ComponentChildren }): JSX.Element {
  return <fieldset class="acting" disabled={stale}>{children}</fieldset>;
}

export function InboxPanel({ items, stale, changed, belief }: { items: Waiting[]; stale: boolean; changed: () => void } & Believed): JSX.Element {
  useInboxKeys();
  const { shown, chip } = useFresh(items, keyOf);
  return (
    <Panel title={<>Waits for you {items.length > 0 && <span class="count">{items.length}</span>}</>} label="Waits for you" icon="person" actions={<span class="note wide"><kbd>J</kbd> <kbd>K</kbd> to move</span>}>
      {items.length === 0 && <p class="note pad">Nothing waits for a person.</p>}
      {chip}
      <Cards stale={stale}>{shown.map((each) => <Card key={keyOf(each)} item={each} changed={changed} belief={belief} />)}</Cards>
    </Panel>
  );
}

function moveCard(by: number): void {
  const cards = [...document.querySelectorAll<HTMLElement>(".card")];
  const at = cards.findIndex((card) => card.contains(document.activeElement));
  cards[Math.max(0, Math.min(cards.length - 1, at + by))]?.focus();
}

const MIN_VIEW_MS = 1000;

/** Whether an element was in view for a second: what was not on the screen cannot be approved. */
function useViewed(shown: string): [{ current: HTMLDivElement | null }, boolean] {
  const element = useRef<HTMLDivElement>(null);
  const [viewed, setViewed] = useState(false);
  useEffect(() => {
    setViewed(false);
    let timer = 0;
    const observer = new IntersectionObserver((entries) => {
      clearTimeout(timer);
      if (entries[0]?.isIntersecting) timer = window.setTimeout(() => setViewed(true), MIN_VIEW_MS);
    }, { threshold: 0.6 });
    if (element.current) observer.observe(element.current);
    return () => {
      clearTimeout(timer);
      observer.disconnect();
    };
  }, [shown]);
  return [element, viewed];
}

function ApprovalCard({ item, approval, changed, belief, tellSession }: { item: Waiting; approval: Approval; changed: () => void } & Believed): JSX.Element {
  const space = item.space_id;
  // Whoever is not shown the call has no hash of it, and can approve nothing.
  const callHash = approval.call_hash ?? "";
  const [shown, setShown] = useState(callHash);
  const [error, setError] = useState<unknown>(null);
  const [reason, setReason] = useState("");
  const [element, viewed] = useViewed(shown);
  const [sending, setSending] = useState(false);
  const moved = shown !== callHash;
  const asked = useLoad(() => readAsked(space, approval), [space, approval.proposal_id, callHash, belief]);
  const session = asked.value?.session ?? null;
  useEffect(() => {
    if (session !== null) tellSession?.(session);
  }, [session]);
  const send = async (write: () => Promise<void>): Promise<void> => {
    setSending(true);
    try {
      await write();
      changed();
    } catch (problem) {
      setError(problem);
    } finally {
      setSending(false);
    }
  };
  const path = { space_id: space, approval_id: approval.approval_id };
  const approve = (): Promise<void> => {
    const body = { uses: 1, call_hash: shown };
    const params = { path, header: onlyOnce() };
    return settle(api.POST("/v1/spaces/{space_id}/approvals/{approval_id}/approve", { params, body }));
  };
  const reject = (): Promise<void> => {
    const body = { reason: reason.trim() || "rejected in the console" };
    const params = { path, header: onlyOnce() };
    return settle(api.POST("/v1/spaces/{space_id}/approvals/{approval_id}/reject", { params, body }));
  };
  return (
    <div class="card" ref={element} tabIndex={-1} role="group" aria-label={`Approval of ${approval.tool_id ?? "a change of state"}`}>
      <div class="row"><span class="mono strong grow">{approval.tool_id ?? "state"}</span><span class="f3">expires in {span(Date.parse(approval.expires_at) - Date.now())}</span></div>
      <p class="f2 small">{approval.proposer.kind} {approval.proposer.id} asks. {approval.constraints.map((each) => each.replace("constraint.", "")).join(", ")}</p>
      {approval.args !== undefined && approval.args !== null && <pre class="args" tabIndex={0} aria-label="Exact arguments">{JSON.stringify(approval.args, null, 2)}</pre>}
      {approval.forwarded !== undefined && approval.forwarded !== null && <pre class="args" tabIndex={0} aria-label="Sent beside the arguments">{JSON.stringify(approval.forwarded, null, 2)}</pre>}
      <dl class="mini">
        <div class="pair"><dt>where</dt><dd><span class="mono">{space}</span>{item.case_id && <>, case <span class="mono">{item.case_id}</span>{item.case_title && ` ${item.case_title}`}</>}</dd></div>
        <div class="pair"><dt>would change</dt><dd>{asked.value ? <Changes asked={asked.value} /> : asked.error !== null ? <span class="refused">not known: {String(asked.error instanceof Error ? asked.error.message : asked.error)}</span> : <span role="status" aria-label="Loading">…</span>}</dd></div>
        {asked.value?.now && <BeliefRows asked={asked.value} now={asked.value.now} />}
        <div class="pair"><dt>bound to</dt><dd class="mono f2">call {short(callHash)}{approval.tool_hash ? `, tool ${short(approval.tool_hash)}` : ""}, policy {short(approval.policy_hash)}</dd></div>
      </dl>
      {moved && <p class="owed" role="alert">Changed, look again. <button type="button" class="btn" onClick={() => setShown(callHash)}>I looked</button></p>}
      {error !== null && <Failure error={error} />}
      {may("spaces:approve", space) && (
        <>
          <label class="reason"><span class="sr">Reason of a rejection</span><input class="field" placeholder="reason, where you reject" value={reason} onInput={(event) => setReason(event.currentTarget.value)} /></label>
          <p class="row">
            <button type="button" data-approve class="btn primary grow" disabled={!viewed || moved || sending || (asked.value === null && asked.error === null)} onClick={() => void send(approve)}><Icon of="check" />Approve once <kbd>A</kbd></button>
            <button type="button" data-reject class="btn" disabled={sending} onClick={() => void send(reject)}>Reject <kbd>X</kbd></button>
            {mayWithdraw(space, approval.proposer) && <button type="button" class="btn ghost" disabled={sending} onClick={() => void send(() => withdraw(space, approval.proposal_id, reason))}>Withdraw</button>}
          </p>
        </>
      )}
    </div>
  );
}

/** − and + lines: what the state is, and what it would be. */
function Changes({ asked }: { asked: Asked }): JSX.Element {
  if (asked.changes.length === 0) return <span class="f2">{asked.writes === false ? "nothing: its tool only reads" : "nothing of this state: its tool writes elsewhere"}</span>;
  return (
    <ul class="changes">
      {asked.changes.map((each) => (
        <li key={each.key}>
          <span class="mono wrap">{each.key}</span>
          <span class="mono wrap">{each.before !== null && <span class="del">− {each.before} </span>}{each.from !== undefined ? <span class="ins">+ what it answers at {each.from}</span> : each.after !== null ? <span class="ins">+ {each.after}</span> : each.before === null && <span class="f3">was not set</span>}</span>
        </li>
      ))}
    </ul>
  );
}

function BeliefRows({ asked, now }: { asked: Asked; now: NonNullable<Asked["now"]> }): JSX.Element {
  const session = encodeURIComponent(asked.session!);
  const { then } = asked;
  return (
    <>
      <div class="pair"><dt>belief then</dt><dd>{then === null ? <span class="f2">its rule read none</span> : <><Link class="under" to={`cases/${session}?at=${then.seq}`}>{plural(then.left, "cause")} left</Link> <span class="f2">at event {then.seq}</span></>}</dd></div>
      <div class="pair"><dt>belief now</dt><dd>
        <Link class="under" to={`cases/${session}`}>{plural(now.left, "cause")} left</Link>
        {then !== null && <span class="f2"> at event {now.seq}: {now.left === then.left ? "nothing more was ruled out" : `${count(then.left - now.left)} more ruled out since`}</span>}
        {now.some.length > 0 && <span class="f2 wrap">: {now.some.slice(0, 4).join(", ")}{now.left > 4 ? " …" : ""}</span>}
      </dd></div>
    </>
  );
}

function DoubtCard({ space, execution, changed }: { space: string; execution: Execution; changed: () => void }): JSX.Element {
  const [error, setError] = useState<unknown>(null);
  const [evidence, setEvidence] = useState("");
  const report = async (ran: boolean): Promise<void> => {
    try {
      const said = `${identity.value?.id ?? "a person"} says: ${evidence.trim()}`;
      await reportCall(space, execution.call_id, ran
        ? { status: "succeeded", result: { evidence: said } }
        : { status: "failed", error: said });
      changed();
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <div class="card" tabIndex={-1} role="group" aria-label={`In doubt: ${execution.tool_id}`}>
      <div class="row"><span class="mono strong">{execution.tool_id}</span><span class="chip owed">in doubt</span><span class="grow" /><span class="f3">{space}</span></div>
      <p class="f2 small">It began at entry {execution.started_seq}, and no outcome came. Whether it ran is not known.</p>
      <pre class="args" tabIndex={0} aria-label="Arguments">{JSON.stringify(execution.args, null, 2)}</pre>
      {error !== null && <Failure error={error} />}
      {mayOperate(space) && (
        <>
          <label class="reason"><span class="sr">Evidence</span><input class="field" placeholder="what you saw" value={evidence} onInput={(event) => setEvidence(event.currentTarget.value)} /></label>
          <p class="row">
            <button type="button" class="btn" disabled={evidence.trim() === ""} onClick={() => void report(true)}>It ran</button>
            <button type="button" class="btn" disabled={evidence.trim() === ""} onClick={() => void report(false)}>It did not</button>
          </p>
        </>
      )}
    </div>
  );
}

/** A change of policy that another operator proposed; `review` leads to its file. */
export function ChangeCard({ space, change, changed, review = true }: { space: string; change: PolicyChange; changed: () => void; review?: boolean }): JSX.Element {
  const [error, setError] = useState<unknown>(null);
  const decide = async (verb: "authorise" | "reject"): Promise<void> => {
    try {
      const path = { space_id: space, change_id: change.change_id };
      const options = { params: { path, header: onlyOnce() }, body: { reason: "" } };
      await settle(api.POST(`/v1/spaces/{space_id}/policy/changes/{change_id}/${verb}`, options));
      changed();
    } catch (problem) {
      setError(problem);
    }
  };
  const keys = [...Object.keys(change.set), ...change.unset];
  return (
    <div class="card" tabIndex={-1} role="group" aria-label="Policy change">
      <div class="row"><b>Policy change</b><span class="grow" /><span class="f3">{space}</span></div>
      <p class="f2 small">{change.proposer.id} proposes it; a second operator puts it in force. {plural(keys.length, "key")}: <span class="mono">{keys.slice(0, 4).join(", ")}</span></p>
      {error !== null && <Failure error={error} />}
      {mayOperate(space) && (
        <p class="row">
          <button type="button" class="btn primary" onClick={() => void decide("authorise")}>Put in force</button>
          <button type="button" class="btn" onClick={() => void decide("reject")}>Reject</button>
          {review && <Link class="btn ghost" to={`spaces/${encodeURIComponent(space)}/policy/changes/${encodeURIComponent(change.change_id)}`}>Review</Link>}
        </p>
      )}
    </div>
  );
}

/** What takes a second operator: the same request again, of another one. */
function SecondCard({ item, changed }: { item: Waiting; changed: () => void }): JSX.Element {
  const [error, setError] = useState<unknown>(null);
  const observe = item.kind === "observe_mode";
  const confirm = async (): Promise<void> => {
    try {
      const params = { path: { space_id: item.space_id }, header: onlyOnce() };
      if (observe) await settle(api.POST("/v1/spaces/{space_id}/mode", { params, body: { mode: "observe" } }));
      else await settle(api.POST("/v1/spaces/{space_id}/governance", { params, body: { operators_needed: 1 } }));
      changed();
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <div class="card" tabIndex={-1} role="group" aria-label={observe ? "Change to observing" : "Change to one operator"}>
      <div class="row"><b>{observe ? "Observe, and block nothing" : "One operator is enough"}</b><span class="grow" /><span class="f3">{item.space_id}</span></div>
      <p class="f2 small">{item.asked_by} asks. {observe ? "Every decision is still made and recorded, and none is enforced." : "From then on a change of policy takes one operator, not two."}</p>
      {error !== null && <Failure error={error} />}
      {mayOperate(item.space_id) && <p class="row"><button type="button" class="btn primary" onClick={() => void confirm()}>Confirm</button></p>}
    </div>
  );
}

const KINDS: [Waiting["kind"] | null, string][] = [
  [null, "All"],
  ["approval", "Approvals"],
  ["execution_in_doubt", "In doubt"],
  ["policy_change", "Policy"],
];

/** They are named in an address, which is not to grow without bound. */
const MAX_SESSIONS_FOLLOWED = 20;

/** Everything that waits for this key, of all spaces. */
export function InboxPage(): JSX.Element {
  const news = useNews(may("spaces:read") ? EVERY_SPACE : null);
  const loaded = useLoad(() => readInbox(), [news.count]);
  const [sessions, setSessions] = useState<string[]>([]);
  const belief = useNews(sessions.length > 0 ? { every: { stream_id: sessions } } : null);
  const tellSession = (session: string): void => setSessions((before) => (before.includes(session) || before.length >= MAX_SESSIONS_FOLLOWED ? before : [...before, session]));
  const live = joinNews(news, belief);
  const kind = place.value.query.get("kind");
  // Who is sent here for one call sees that one.
  const space = place.value.query.get("space");
  const proposal = place.value.query.get("proposal");
  useEffect(() => {
    if (loaded.value) noteWaiting(loaded.value);
  }, [loaded.value]);
  useInboxKeys();
  const all = loaded.value ?? [];
  const listed = useFresh(all, keyOf);
  const isMeant = (each: Waiting): boolean => proposal === null || (each.space_id === space && (each.approval ?? each.execution)?.proposal_id === proposal);
  const shown = listed.shown.filter((each) => (kind === null || each.kind === kind) && isMeant(each));
  return (
    <Page title="Inbox" chips={loaded.value && <span class="chip">{plural(all.length, "thing waits", "things wait")}</span>} status={<LiveChip {...live} />}>
      {!may("spaces:read") && <Panel><Empty title="This key may not look into spaces"><p class="f2">Sign in with a key of an operator.</p></Empty></Panel>}
      {loaded.error !== null && <Panel title="Inbox"><Failure error={loaded.error} retry={loaded.again} /></Panel>}
      {loaded.loading && !loaded.value && <Panel><Skeleton height={200} /></Panel>}
      {loaded.value && may("spaces:read") && all.length === 0 && <Panel><Empty title="Nothing waits for a person"><p class="f2">Approvals that a policy asks for, calls whose outcome is not known, and changes of policy are listed here.</p></Empty></Panel>}
      {all.length > 0 && (
        <div class="filters">
          <span class="seg" role="group" aria-label="Kind">
            {KINDS.map(([name, label]) => <button key={label} type="button" aria-pressed={kind === name} onClick={() => setQuery({ kind: name })}>{label} <span class="num">{count(all.filter((each) => name === null || each.kind === name).length)}</span></button>)}
          </span>
          <span class="note wide">by space, the oldest first · <kbd>J</kbd> <kbd>K</kbd> to move</span>
        </div>
      )}
      {all.length > 0 && proposal !== null && <p class="note">Of one call only. <button type="button" class="btn ghost" onClick={() => setQuery({ space: null, proposal: null })}>Show everything</button></p>}
      {all.length > 0 && shown.length === 0 && <Panel><p class="note pad">{proposal === null ? "None of this kind." : "This call does not wait any more."}</p></Panel>}
      <div>
        {listed.chip}
        <Cards stale={live.pulse?.state === "stale"}><div class="inbox">{shown.map((each) => <div class="panel" key={keyOf(each)}><Card item={each} changed={loaded.again} belief={belief.count} tellSession={tellSession} /></div>)}</div></Cards>
      </div>
    </Page>
  );
}
