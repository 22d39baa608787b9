// What waits for a person: approvals, executions in doubt, changes of policy.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, identity, may, mayOperate, mayWithdraw } from "../../api/client";
import { count, plural, short, span } from "../../ui/format";
import { Aimed, AimedFoot, EndMark, useAim } from "../../ui/aim";
import { Arguments, Exact, GlyphNote, listTexts } from "../../ui/exact";
import { LiveChip, Page, said as spoken, urged, waiting } from "../../ui/frame";
import { Slot, useHeld } from "../../ui/held";
import { Icon } from "../../ui/icons";
import { useKeys } from "../../ui/keys";
import { joinNews, useNews } from "../../ui/news";
import { Empty, Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link, place, setQuery } from "../../ui/router";
import type { Approval, Asked, Execution, PolicyChange, Waiting } from "./model";
import { EVERY_SPACE, onlyOnce, readAsked, readInbox, readPolicyPairs, readSettlement, reportCall, settle, withdraw } from "./model";

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

interface Shown extends Believed {
  items: Waiting[] | null;
  stale: boolean;
  changed: () => void;
  /** Grows with whatever is written, so that notes say what became of a thing. */
  news: number;
  /** Which of them to show; all where it is left out. */
  isMeant?: (item: Waiting) => boolean;
}

/** The cards of what waits, and notes in the places of those that ended. */
function WaitingCards({ items, stale, changed, news, isMeant = () => true, class: more = "", panel = "", ...believed }: Shown & { class?: string; panel?: string }): JSX.Element {
  const { held, chip } = useHeld(items, keyOf);
  const shown = held.filter((each) => isMeant(each.row));
  return (
    <>
      {chip}
      <Cards stale={stale}>
        <div class={more}>
          {shown.map(({ key, row, isLive }) => <Slot key={key} named={key} isLive={isLive} class={panel}>{isLive ? <Card item={row} changed={changed} {...believed} /> : <Ended item={row} news={news} />}</Slot>)}
        </div>
      </Cards>
    </>
  );
}

export function InboxPanel({ items, ...rest }: Shown): JSX.Element {
  useInboxKeys();
  const n = items?.length ?? 0;
  return (
    <Panel title={<>Waits for you {n > 0 && <span class="count">{n}</span>}</>} label="Waits for you" icon="person" actions={<span class="note wide"><kbd>J</kbd> <kbd>K</kbd> to move</span>}>
      {items !== null && n === 0 && <p class="note pad">Nothing is waiting for you in this case.</p>}
      <WaitingCards items={items} {...rest} />
    </Panel>
  );
}

function moveCard(by: number): void {
  const cards = [...document.querySelectorAll<HTMLElement>(".card")];
  const at = cards.findIndex((card) => card.contains(document.activeElement));
  cards[Math.max(0, Math.min(cards.length - 1, at + by))]?.focus();
}

/** Write once, and say what went wrong; what waits is read again either way, since another may have been first. */
function useSending(changed: () => void): { sending: boolean; error: unknown; send: (write: () => Promise<void>) => void } {
  const [sending, setSending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const send = (write: () => Promise<void>): void => {
    setSending(true);
    setError(null);
    write().catch(setError).finally(() => {
      setSending(false);
      changed();
    });
  };
  return { sending, error, send };
}

function ApprovalCard({ item, approval, changed, belief, tellSession }: { item: Waiting; approval: Approval; changed: () => void } & Believed): JSX.Element {
  const space = item.space_id;
  // Whoever is not shown the call has no hash of it, and can approve nothing.
  const callHash = approval.call_hash ?? "";
  const [shown, setShown] = useState(callHash);
  const [reason, setReason] = useState("");
  const { sending, error, send } = useSending(changed);
  const aim = useAim(shown);
  const moved = shown !== callHash;
  const asked = useLoad(() => readAsked(space, approval), [space, approval.proposal_id, callHash, belief]);
  const session = asked.value?.session ?? null;
  useEffect(() => {
    if (session !== null) tellSession?.(session);
  }, [session]);
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
  const isCall = approval.tool_id !== null;
  const isShown = !isCall || (approval.args ?? null) !== null;
  const rules = approval.constraints.map((each) => each.replace("constraint.", ""));
  const last = asked.value?.last ?? null;
  const texts = [approval.tool_id ?? "", approval.proposer.id, ...rules, asked.value?.because ?? "", ...listTexts(approval.args, approval.forwarded)];
  for (const each of asked.value?.changes ?? []) texts.push(each.key, each.after ?? "");
  return (
    <Aimed aim={aim} label={`Approval of ${approval.tool_id ?? "a change of state"}`}>
      <div class="row"><span class="mono strong grow wrap"><Exact text={approval.tool_id ?? "state"} /></span><span class="f3">expires in {span(Date.parse(approval.expires_at) - Date.now())}</span></div>
      <p class="f2 small">{approval.proposer.kind} <b><Exact text={approval.proposer.id} /></b> asks{approval.proposer.authenticated ? ", signed in with a key" : ""}.</p>
      <p class="small wrap"><b>Because</b> {asked.value === null ? "…" : asked.value.because === null ? <span class="f2">the rule gives no reason</span> : <Exact text={asked.value.because} />} <span class="f3">({rules.map((each, n) => <>{n > 0 && ", "}<Exact key={each} text={each} /></>)})</span></p>
      <GlyphNote texts={texts} />
      {!isShown && <p class="refused">This key may not see the arguments, so it cannot approve them.</p>}
      {isCall && isShown && <Arguments label="Exact arguments" value={approval.args} {...(last ? { before: last.args } : {})} />}
      {isCall && asked.value && <p class="f3 small">{last === null ? "No call of this tool was approved before." : <>Compared with the last one that was approved, by {last.approver === null ? "a rule" : <Exact text={last.approver.id} />}.</>}</p>}
      {approval.forwarded !== undefined && approval.forwarded !== null && <Arguments label="Sent beside the arguments" value={approval.forwarded} {...(last ? { before: last.forwarded ?? null } : {})} />}
      <dl class="mini">
        <div class="pair"><dt>where</dt><dd class="wrap">space <span class="mono"><Exact text={space} /></span>{approval.case_id && <>, case <CaseName id={approval.case_id} asked={asked.value} title={item.case_title} /></>}</dd></div>
        <div class="pair"><dt>would change</dt><dd>{asked.value ? <Changes asked={asked.value} /> : asked.error !== null ? <span class="refused">not known: {String(asked.error instanceof Error ? asked.error.message : asked.error)}</span> : <span role="status" aria-label="Loading">…</span>}</dd></div>
        {asked.value?.now && <BeliefRows asked={asked.value} now={asked.value.now} />}
        <div class="pair"><dt>bound to</dt><dd class="mono f2">call <span title={callHash}>{short(callHash)}</span>{approval.tool_hash ? `, tool ${short(approval.tool_hash)}` : ""}, policy {short(approval.policy_hash)}</dd></div>
      </dl>
      {moved && <p class="owed" role="alert">Changed, look again. <button type="button" class="btn" onClick={() => setShown(callHash)}>I looked</button></p>}
      {error !== null && <Failure error={error} />}
      {may("spaces:approve", space) && (
        <>
          <label class="reason"><span class="sr">Reason of a rejection</span><input class="field" placeholder="reason, where you reject" value={reason} onInput={(event) => setReason(event.currentTarget.value)} /></label>
          <AimedFoot aim={aim}>
            <button type="button" data-approve class="btn primary grow" disabled={!aim.ready || !isShown || moved || sending || (asked.value === null && asked.error === null)} {...aim.aimed(() => send(approve))}><Icon of="check" />Approve once <kbd>A</kbd></button>
            <button type="button" data-reject class="btn" disabled={sending || !aim.isLooked} {...aim.aimed(() => send(reject), "looked")}>Reject <kbd>X</kbd></button>
            {mayWithdraw(space, approval.proposer) && <button type="button" class="btn ghost" disabled={sending || !aim.isLooked} {...aim.aimed(() => send(() => withdraw(space, approval.proposal_id, reason)), "looked")}>Withdraw</button>}
          </AimedFoot>
        </>
      )}
    </Aimed>
  );
}

/** A case by its name and its title, which lead to it. */
function CaseName({ id, asked, title }: { id: string; asked: Asked | null; title: string | null }): JSX.Element {
  const about = asked?.about ?? null;
  const called = about?.title ?? title;
  return <><Link class="under mono" to={`cases/${encodeURIComponent(id)}`}><Exact text={about?.name ?? id} /></Link>{called && <> <Exact text={called} /></>}</>;
}

/** − and + lines: what the state is, and what it would be. */
function Changes({ asked }: { asked: Asked }): JSX.Element {
  if (asked.changes.length === 0) return <span class="f2">{asked.writes === false ? "nothing: its tool only reads" : "nothing in this space: its tool writes elsewhere"}</span>;
  return (
    <ul class="changes">
      {asked.changes.map((each) => (
        <li key={each.key}>
          <span class="mono wrap"><Exact text={each.key} /></span>
          <span class="mono wrap">{each.before !== null && <span class="del">− <Exact text={each.before} /> </span>}{each.from !== undefined ? <span class="ins">+ what it answers at {each.from}</span> : each.after !== null ? <span class="ins">+ <Exact text={each.after} /></span> : each.before === null && <span class="f3">was not set</span>}</span>
        </li>
      ))}
      <li aria-hidden="true"><EndMark /></li>
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
  const [evidence, setEvidence] = useState("");
  const { sending, error, send } = useSending(changed);
  const aim = useAim(execution.execution_id);
  const report = (ran: boolean): Promise<void> => {
    const said = `${identity.value?.id ?? "a person"} says: ${evidence.trim()}`;
    return reportCall(space, execution.call_id, ran ? { status: "succeeded", result: { evidence: said } } : { status: "failed", error: said });
  };
  const isOff = evidence.trim() === "" || sending || !aim.ready;
  return (
    <Aimed aim={aim} label={`In doubt: ${execution.tool_id}`}>
      <div class="row"><span class="mono strong wrap"><Exact text={execution.tool_id} /></span><span class="chip owed">in doubt</span><span class="grow" /><span class="f3 wrap">{space}</span></div>
      <p class="f2 small">It was started at entry {execution.started_seq} by <Exact text={execution.agent_id} />, and no outcome was recorded. Whether it ran is not known.</p>
      <GlyphNote texts={[execution.tool_id, execution.agent_id, ...listTexts(execution.args)]} />
      <Arguments label="Arguments" value={execution.args ?? null} />
      {error !== null && <Failure error={error} />}
      {mayOperate(space) && (
        <>
          <label class="reason"><span class="sr">Evidence</span><input class="field" placeholder="what you saw" value={evidence} onInput={(event) => setEvidence(event.currentTarget.value)} /></label>
          <AimedFoot aim={aim}>
            <button type="button" class="btn" disabled={isOff} {...aim.aimed(() => send(() => report(true)))}>It ran</button>
            <button type="button" class="btn" disabled={isOff} {...aim.aimed(() => send(() => report(false)))}>It did not</button>
          </AimedFoot>
        </>
      )}
    </Aimed>
  );
}

/** A change of policy that another operator proposed. It is put in force where it was read: `whole` shows all of it. */
export function ChangeCard({ space, change, changed, whole = false }: { space: string; change: PolicyChange; changed: () => void; whole?: boolean }): JSX.Element {
  const { sending, error, send } = useSending(changed);
  const aim = useAim(change.change_id);
  const decide = (verb: "authorise" | "reject"): Promise<void> => {
    const path = { space_id: space, change_id: change.change_id };
    const options = { params: { path, header: onlyOnce() }, body: { reason: "" } };
    return settle(api.POST(`/v1/spaces/{space_id}/policy/changes/{change_id}/${verb}`, options));
  };
  const keys = [...Object.keys(change.set), ...change.unset];
  return (
    <Aimed aim={aim} label="Policy change">
      <div class="row"><b>Policy change</b><span class="grow" /><span class="f3 wrap">{space}</span></div>
      <p class="f2 small wrap"><Exact text={change.proposer.id} /> proposes it; a second operator puts it in force. {plural(keys.length, "rule or setting", "rules and settings")}: <span class="mono"><Exact text={keys.slice(0, 4).join(", ")} />{keys.length > 4 && " …"}</span></p>
      {change.reason && <p class="wrap"><b>Because</b> <Exact text={change.reason} /></p>}
      {whole && <PolicyDifference space={space} change={change} />}
      {error !== null && <Failure error={error} />}
      {mayOperate(space) && (
        <AimedFoot aim={aim}>
          {whole && <button type="button" class="btn primary" disabled={sending || !aim.ready} {...aim.aimed(() => send(() => decide("authorise")))}>Put in force</button>}
          {!whole && <Link class="btn primary" to={`spaces/${encodeURIComponent(space)}/policy/changes/${encodeURIComponent(change.change_id)}`}>Review</Link>}
          <button type="button" class="btn" disabled={sending || !aim.isLooked} {...aim.aimed(() => send(() => decide("reject")), "looked")}>Reject</button>
        </AimedFoot>
      )}
    </Aimed>
  );
}

/** Every rule and setting that a change would set or take away, with what it is now. */
function PolicyDifference({ space, change }: { space: string; change: PolicyChange }): JSX.Element {
  const pairs = useLoad(() => readPolicyPairs(space), [space, change.base_policy_hash]);
  const rows: [string, string | null][] = [...Object.entries(change.set), ...change.unset.map((key): [string, null] => [key, null])];
  return (
    <>
      {pairs.error !== null && <Failure error={pairs.error} retry={pairs.again} />}
      <GlyphNote texts={rows.flatMap(([key, value]) => [key, value ?? ""])} />
      <div class="args rows" tabIndex={0} role="group" aria-label="What it changes">
        <ul>
          {rows.map(([key, after]) => {
            const before = pairs.value?.[key] ?? null;
            return (
              <li key={key}>
                <span class="name"><Exact text={key} /></span>
                {before !== null && <div class="del">− <Exact text={before} /></div>}
                {after !== null ? <div class="ins">+ <Exact text={after} /></div> : <div class="f2">is taken away</div>}
              </li>
            );
          })}
        </ul>
        <EndMark reachable={pairs.value !== null} />
      </div>
    </>
  );
}

/** What takes a second operator: the same request again, of another one. */
function SecondCard({ item, changed }: { item: Waiting; changed: () => void }): JSX.Element {
  const { sending, error, send } = useSending(changed);
  const aim = useAim(`${item.kind} ${item.id}`);
  const observe = item.kind === "observe_mode";
  const confirm = (): Promise<void> => {
    const params = { path: { space_id: item.space_id }, header: onlyOnce() };
    if (observe) return settle(api.POST("/v1/spaces/{space_id}/mode", { params, body: { mode: "observe" } }));
    return settle(api.POST("/v1/spaces/{space_id}/governance", { params, body: { operators_needed: 1 } }));
  };
  return (
    <Aimed aim={aim} label={observe ? "Change to observing" : "Change to one operator"}>
      <div class="row"><b>{observe ? "Observe, and block nothing" : "One operator is enough"}</b><span class="grow" /><span class="f3 wrap">{item.space_id}</span></div>
      <p class="f2 small"><Exact text={item.asked_by} /> asks. {observe ? "Every decision is still made and recorded, and none is enforced." : "From then on a change of policy takes one operator, not two."}</p>
      {error !== null && <Failure error={error} />}
      {mayOperate(item.space_id) && <AimedFoot aim={aim}><button type="button" class="btn primary" disabled={sending || !aim.ready} {...aim.aimed(() => send(confirm))}>Confirm</button></AimedFoot>}
    </Aimed>
  );
}

/** What stands in the place of a card that ended: what it was, what became of it, who was first, and where to look. */
function Ended({ item, news }: { item: Waiting; news: number }): JSX.Element {
  const became = useLoad(() => readSettlement(item), [item.id, news]);
  const what = item.approval?.tool_id ?? item.execution?.tool_id ?? NAMES[item.kind];
  const proposal = item.approval?.proposal_id ?? item.execution?.proposal_id;
  const session = item.case_id === null ? null : `cases/${encodeURIComponent(item.case_id)}/actions?space=${encodeURIComponent(item.space_id)}`;
  const to = session !== null && proposal !== undefined ? `${session}&proposal=${encodeURIComponent(proposal)}` : `ledger/${encodeURIComponent(`space:${item.space_id}`)}`;
  const said = became.value && `${what}: ${became.value.said}`;
  useEffect(() => {
    if (said !== null) spoken.value = `${said}.`;
  }, [said]);
  return (
    <div class="ended" role="note" aria-label={`Ended: ${what}`}>
      {became.value === null && became.error === null && <p class="f2"><span class="mono wrap"><Exact text={what} /></span> waits no more.</p>}
      {became.error !== null && <Failure error={became.error} retry={became.again} />}
      {became.value && (
        <>
          <p class="wrap"><span class="mono strong"><Exact text={what} /></span> <b><Exact text={became.value.said} /></b></p>
          {became.value.outcome !== null && <p class="f2 wrap"><Exact text={became.value.outcome} /></p>}
        </>
      )}
      <p><Link class="under" to={to}>{session !== null && proposal !== undefined ? "See its outcome" : "See it in the ledger"}</Link></p>
    </div>
  );
}

const NAMES: Record<Waiting["kind"], string> = {
  approval: "change of state",
  execution_in_doubt: "call in doubt",
  policy_change: "policy change",
  observe_mode: "change to observing",
  governance: "change to one operator",
};

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
  const isMeant = (each: Waiting): boolean => proposal === null || (each.space_id === space && (each.approval ?? each.execution)?.proposal_id === proposal);
  const isChosen = (each: Waiting): boolean => (kind === null || each.kind === kind) && isMeant(each);
  const isNone = !all.some(isChosen);
  return (
    <Page title="Inbox" chips={loaded.value && <span class="chip">{plural(all.length, "thing waits", "things wait")}</span>} status={<LiveChip {...live} />}>
      {!may("spaces:read") && <Panel><Empty title="This key may not look into spaces"><p class="f2">Sign in with a key of an operator.</p></Empty></Panel>}
      {loaded.error !== null && <Panel title="Inbox"><Failure error={loaded.error} retry={loaded.again} /></Panel>}
      {loaded.loading && !loaded.value && <Panel><Skeleton height={200} /></Panel>}
      {loaded.value && may("spaces:read") && all.length === 0 && <Panel><Empty title="Nothing is waiting for you"><p class="f2">Approvals that a policy asks for, calls whose outcome is not known, and changes of policy are listed here.</p></Empty></Panel>}
      {all.length > 0 && (
        <div class="filters">
          <span class="seg" role="group" aria-label="Kind">
            {KINDS.map(([name, label]) => <button key={label} type="button" aria-pressed={kind === name} onClick={() => setQuery({ kind: name })}>{label} <span class="num">{count(all.filter((each) => name === null || each.kind === name).length)}</span></button>)}
          </span>
          <span class="note wide">by space, the oldest first · <kbd>J</kbd> <kbd>K</kbd> to move</span>
        </div>
      )}
      {all.length > 0 && proposal !== null && <p class="note">Of one call only. <button type="button" class="btn ghost" onClick={() => setQuery({ space: null, proposal: null })}>Show everything</button></p>}
      {all.length > 0 && isNone && <Panel><p class="note pad">{proposal === null ? "None of this kind." : "This call does not wait any more, or nothing of this id was asked for."}</p></Panel>}
      <div>
        <WaitingCards items={loaded.value} stale={live.pulse?.state === "stale"} changed={loaded.again} news={news.count} isMeant={isChosen} belief={belief.count} tellSession={tellSession} class="inbox" panel="panel" />
      </div>
    </Page>
  );
}
