// What waits for a person: approvals, executions in doubt, changes of policy.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, identity, may, mayOperate, post } from "../../api/client";
import { plural, short, span } from "../../ui/format";
import { Page, waiting } from "../../ui/frame";
import { Icon } from "../../ui/icons";
import { useKeys } from "../../ui/keys";
import { Empty, Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link } from "../../ui/router";
import { type Approval, type Execution, type PolicyChange, type Waiting, findWaiting, listSpaces, pathOf } from "./model";

interface Granted {
  granted?: boolean;
  reason_code?: string | null;
  refusal?: { message: string; next?: string } | null;
}

/** Ask for something, and say what the space refused. */
async function ask(path: string, body: unknown): Promise<void> {
  const answer = await post<Granted>(path, body, { "Idempotency-Key": crypto.randomUUID() });
  if (answer.granted === false) throw new Error(answer.refusal?.message ?? `the space refused it: ${answer.reason_code}`);
}

export function InboxPanel({ items, changed }: { items: Waiting[]; changed: () => void }): JSX.Element {
  useKeys({
    a: () => document.querySelector<HTMLElement>("[data-approve]")?.focus(),
    x: () => document.querySelector<HTMLElement>("[data-reject]")?.focus(),
    j: () => moveCard(1),
    k: () => moveCard(-1),
  });
  return (
    <Panel title={<>Waits for you {items.length > 0 && <span class="count">{items.length}</span>}</>} label="Waits for you" icon="person" actions={<span class="note wide"><kbd>J</kbd> <kbd>K</kbd> to move</span>}>
      {items.length === 0 && <p class="note pad">Nothing waits for a person.</p>}
      {items.map((each) =>
        each.approval ? <ApprovalCard key={each.approval.approval_id} space={each.space} approval={each.approval} changed={changed} />
        : each.execution ? <DoubtCard key={each.execution.execution_id} space={each.space} execution={each.execution} changed={changed} />
        : each.change ? <ChangeCard key={each.change.change_id} space={each.space} change={each.change} changed={changed} /> : null,
      )}
    </Panel>
  );
}

function moveCard(by: number): void {
  const cards = [...document.querySelectorAll<HTMLElement>(".card")];
  const at = cards.indexOf(document.activeElement as HTMLElement);
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

interface Belief {
  n_survivors: number;
  survivors: string[];
  head: string;
}

function ApprovalCard({ space, approval, changed }: { space: string; approval: Approval; changed: () => void }): JSX.Element {
  const [shown, setShown] = useState(approval.args_hash);
  const [error, setError] = useState<unknown>(null);
  const [reason, setReason] = useState("");
  const [element, viewed] = useViewed(shown);
  const [sending, setSending] = useState(false);
  const moved = shown !== approval.args_hash;
  const belief = useLoad(() => readBelief(space, approval.proposal_id), [space, approval.proposal_id]);
  const path = `${pathOf(space)}/approvals/${encodeURIComponent(approval.approval_id)}`;
  const settle = async (verb: "approve" | "reject"): Promise<void> => {
    setSending(true);
    try {
      await ask(`${path}/${verb}`, verb === "approve" ? { uses: 1, args_hash: shown } : { reason: reason.trim() || "rejected in the console" });
      changed();
    } catch (problem) {
      setError(problem);
    } finally {
      setSending(false);
    }
  };
  return (
    <div class="card" ref={element} tabIndex={-1} role="group" aria-label={`Approval of ${approval.tool_id ?? "a change of state"}`}>
      <div class="row"><span class="mono strong grow">{approval.tool_id ?? "state"}</span><span class="f3">expires in {span(Date.parse(approval.expires_at) - Date.now())}</span></div>
      <p class="f2 small">{approval.proposer.kind} {approval.proposer.id} asks. {approval.constraints.map((each) => each.replace("constraint.", "")).join(", ")}</p>
      <pre class="args" tabIndex={0} aria-label="Exact arguments">{JSON.stringify(approval.args, null, 2)}</pre>
      <dl class="mini">
        <div class="pair"><dt>space</dt><dd class="mono">{space}</dd></div>
        {belief.value && (
          <div class="pair"><dt>belief now</dt><dd><Link class="under" to={`cases/${encodeURIComponent(belief.value.session)}`}>{plural(belief.value.now.n_survivors, "cause")} left</Link>{belief.value.now.survivors.length > 0 && <span class="f2">: {belief.value.now.survivors.slice(0, 4).join(", ")}{belief.value.now.survivors.length > 4 ? " …" : ""}</span>}</dd></div>
        )}
        <div class="pair"><dt>bound to</dt><dd class="mono f2">args {short(approval.args_hash)}{approval.tool_hash ? `, tool ${short(approval.tool_hash)}` : ""}, policy {short(approval.policy_hash)}</dd></div>
      </dl>
      {moved && <p class="owed" role="alert">Changed, look again. <button type="button" class="btn" onClick={() => setShown(approval.args_hash)}>I looked</button></p>}
      {error !== null && <Failure error={error} />}
      {may("spaces:approve") && (
        <>
          <label class="reason"><span class="sr">Reason of a rejection</span><input class="field" placeholder="reason, where you reject" value={reason} onInput={(event) => setReason(event.currentTarget.value)} /></label>
          <p class="row">
            <button type="button" data-approve class="btn primary grow" disabled={!viewed || moved || sending} onClick={() => void settle("approve")}><Icon of="check" />Approve once <kbd>A</kbd></button>
            <button type="button" data-reject class="btn" disabled={sending} onClick={() => void settle("reject")}>Reject <kbd>X</kbd></button>
          </p>
        </>
      )}
    </div>
  );
}

async function readBelief(space: string, proposal: string): Promise<{ session: string; now: Belief } | null> {
  const asked = await get<{ case_id: string | null }>(`${pathOf(space)}/proposals/${encodeURIComponent(proposal)}`, { fields: "case_id" });
  if (!asked.case_id) return null;
  const one = await get<{ session_id: string }>(`${pathOf(space)}/cases/${encodeURIComponent(asked.case_id)}`, { fields: "session_id" });
  const page = await get<{ survivors: string[]; n_survivors: number; audit_head_event_id: string }>(`v1/sessions/${encodeURIComponent(one.session_id)}/survivors`, { limit: 5 });
  return { session: one.session_id, now: { n_survivors: page.n_survivors, survivors: page.survivors, head: page.audit_head_event_id } };
}

function DoubtCard({ space, execution, changed }: { space: string; execution: Execution; changed: () => void }): JSX.Element {
  const [error, setError] = useState<unknown>(null);
  const [evidence, setEvidence] = useState("");
  const settle = async (ran: boolean): Promise<void> => {
    try {
      const said = `${identity.value?.id ?? "a person"} says: ${evidence.trim()}`;
      await ask(`${pathOf(space)}/executions/${encodeURIComponent(execution.execution_id)}/outcome`, ran ? { status: "succeeded", result: { evidence: said } } : { status: "failed", error: said });
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
      {(mayOperate() || may("spaces:propose")) && (
        <>
          <label class="reason"><span class="sr">Evidence</span><input class="field" placeholder="what you saw" value={evidence} onInput={(event) => setEvidence(event.currentTarget.value)} /></label>
          <p class="row">
            <button type="button" class="btn" disabled={evidence.trim() === ""} onClick={() => void settle(true)}>It ran</button>
            <button type="button" class="btn" disabled={evidence.trim() === ""} onClick={() => void settle(false)}>It did not</button>
          </p>
        </>
      )}
    </div>
  );
}

function ChangeCard({ space, change, changed }: { space: string; change: PolicyChange; changed: () => void }): JSX.Element {
  const [error, setError] = useState<unknown>(null);
  const settle = async (verb: "authorise" | "reject"): Promise<void> => {
    try {
      await ask(`${pathOf(space)}/policy/changes/${encodeURIComponent(change.change_id)}/${verb}`, { reason: "" });
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
      {mayOperate() && (
        <p class="row">
          <button type="button" class="btn primary" onClick={() => void settle("authorise")}>Put in force</button>
          <button type="button" class="btn" onClick={() => void settle("reject")}>Reject</button>
          <Link class="btn ghost" to={`spaces/${encodeURIComponent(space)}/policy`}>Review the file</Link>
        </p>
      )}
    </div>
  );
}

/** Everything that waits for this key, of all spaces. */
export function InboxPage(): JSX.Element {
  const loaded = useLoad(async () => findWaiting(await listSpaces()), []);
  useEffect(() => {
    if (loaded.value) waiting.value = loaded.value.length;
  }, [loaded.value]);
  return (
    <Page title="Inbox">
      {loaded.error !== null && <Panel title="Inbox"><Failure error={loaded.error} retry={loaded.again} /></Panel>}
      {loaded.loading && !loaded.value && <Panel><Skeleton height={200} /></Panel>}
      {loaded.value && loaded.value.length === 0 && <Panel><Empty title="Nothing waits for a person"><p class="f2">Approvals that a policy asks for, calls whose outcome is not known, and changes of policy are listed here.</p></Empty></Panel>}
      {loaded.value && loaded.value.length > 0 && <div class="inbox"><InboxPanel items={loaded.value} changed={loaded.again} /></div>}
    </Page>
  );
}
