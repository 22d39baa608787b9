// What to ask next, with the bits that are expected of it; a person can record what they saw.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { ApiError, get, identity, may, post } from "../../api/client";
import { bitsOf, type SessionLog } from "../../model/log";
import { bits, count, plural } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Failure, Panel, Skeleton, rest, useLoad } from "../../ui/parts";

export interface Outcome {
  id: string;
  label: string;
  left: number;
}

export interface Probe {
  id: string;
  text: string;
  expected: number;
  numbers: boolean;
  outcomes: Outcome[];
}

export interface Probes {
  list: Probe[] | null;
  error: unknown;
  loading: boolean;
}

interface ProbesPage {
  probes: { probe_id: string; prompt: string; reads_numbers: boolean; expected_bits: number; answers: { outcome_id: string; label: string; leaves: number; rules_out: number }[] }[];
}

/** A slider passes many events on its way, and live events come in bursts: only where it rests is the server asked. */
const REST_MS = 120;

/** Probes of the session's kit, best first, as of the shown event; null where the server knows no kit of it. */
export function useProbes(id: string, log: SessionLog, at: number, size: number): Probes {
  const past = at < size - 1;
  const loaded = useLoad(async (signal): Promise<Probe[] | null> => {
    if (!log.hasKit) return null;
    await rest(REST_MS, signal);
    try {
      const page = await get<ProbesPage>(`v1/sessions/${encodeURIComponent(id)}/probes`, { limit: 50, at: past ? at : undefined }, signal);
      return page.probes.map((each) => ({
        id: each.probe_id,
        text: each.prompt,
        expected: each.expected_bits,
        numbers: each.reads_numbers,
        outcomes: each.answers.map((answer) => ({ id: answer.outcome_id, label: answer.label, left: answer.leaves })),
      }));
    } catch (error) {
      // A session whose kit is not on this server.
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) return null;
      throw error;
    }
  }, [id, past ? at : size]);
  return { list: loaded.value, error: loaded.error, loading: loaded.loading };
}

const MOST = 4;

export function AskNext({ id, log, probes, acting }: { id: string; log: SessionLog; probes: Probes; acting: boolean }): JSX.Element {
  const [recording, setRecording] = useState(false);
  const best = probes.list?.[0]?.expected ?? 1;
  const done = log.endedAt !== null;
  return (
    <Panel title="Ask next" note="expected bits">
      {probes.error !== null && <Failure error={probes.error} />}
      {probes.loading && probes.list === null && probes.error === null && <Skeleton height={120} />}
      {!probes.loading && probes.list === null && probes.error === null && <p class="note pad">No kit of this session is on this server, so no probe can be weighed.</p>}
      {probes.list?.length === 0 && <p class="note pad">{log.left.at(log.head) <= 1 ? "Nothing is left to tell apart." : "No probe tells the rest apart."}</p>}
      <ol class="next">
        {probes.list?.slice(0, MOST).map((probe) => <ProbeRow key={probe.id} probe={probe} best={best} />)}
      </ol>
      {may("belief:write", id) && !done && (
        <div class="pad">
          <button type="button" id="record" class="btn full" disabled={!acting} aria-expanded={recording} onClick={() => setRecording(!recording)}><Icon of="plus" />Record what you saw <kbd>R</kbd></button>
        </div>
      )}
      {recording && acting && (probes.list?.length ? <ProbeRecorder id={id} log={log} probes={probes.list} close={() => setRecording(false)} /> : <Recorder id={id} log={log} close={() => setRecording(false)} />)}
    </Panel>
  );
}

function ProbeRow({ probe, best }: { probe: Probe; best: number }): JSX.Element {
  const [name, where] = probe.id.split("@");
  return (
    <li>
      <div class="clip">
        <span class="mono strong" title={probe.id}>{name}</span>
        <div class="f2 small clip">
          {where}
          {probe.outcomes.length > 0 && <span class="f3"> · {probe.outcomes.map((each) => `${each.id} ${count(each.left)}`).join(", ")} left</span>}
        </div>
      </div>
      <div class="right">
        <b class="num">{bits(probe.expected)}</b> <span class="f3">bits</span>
        <div class="bar"><i style={{ width: `${Math.max(2, (100 * probe.expected) / Math.max(best, 1e-9))}%` }} /></div>
      </div>
    </li>
  );
}

/** What was seen of a probe: what the answer leaves is shown before it is sent. */
function ProbeRecorder({ id, log, probes, close }: { id: string; log: SessionLog; probes: Probe[]; close: () => void }): JSX.Element {
  const [probeId, setProbeId] = useState(probes[0]!.id);
  const [answer, setAnswer] = useState("");
  const [note, setNote] = useState("");
  const [free, setFree] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [sending, setSending] = useState(false);
  const probe = probes.find((each) => each.id === probeId) ?? probes[0]!;
  const outcome = probe.outcomes.find((each) => each.id === answer);
  const left = log.left.at(log.head);
  if (free) return <Recorder id={id} log={log} close={close} />;
  const send = async (): Promise<void> => {
    setSending(true);
    try {
      const number = Number(answer);
      await post(`v1/sessions/${encodeURIComponent(id)}/observations`, {
        probe_id: probe.id,
        response: probe.numbers && !outcome && Number.isFinite(number) ? number : answer,
        source_id: `human://${identity.value?.id ?? "console"}`,
        ...(note.trim() ? { justification: { note: note.trim() } } : {}),
      }, { "Idempotency-Key": crypto.randomUUID(), Prefer: "return=minimal" });
      close();
    } catch (problem) {
      setError(problem);
    } finally {
      setSending(false);
    }
  };
  return (
    <form class="pad recorder" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      <label>Probe<select class="field" value={probe.id} onChange={(event) => { setProbeId(event.currentTarget.value); setAnswer(""); }}>{probes.map((each) => <option key={each.id} value={each.id}>{each.id}</option>)}</select></label>
      <p class="f3">{probe.text}</p>
      <label>Answer<select class="field" required value={answer} onChange={(event) => setAnswer(event.currentTarget.value)}><option value="">choose</option>{probe.outcomes.map((each) => <option key={each.id} value={each.id}>{each.label || each.id}</option>)}</select></label>
      <label>Note<input class="field" value={note} onInput={(event) => setNote(event.currentTarget.value)} /></label>
      {outcome && (
        <p class="num">Rules out <b>{count(left - outcome.left)}</b>, leaves <b class={outcome.left === 0 ? "contra" : "holds"}>{count(outcome.left)}</b>, {bits(bitsOf(left) - bitsOf(Math.max(1, outcome.left)))} bits</p>
      )}
      {error !== null && <Failure error={error} />}
      <p class="row">
        <button type="submit" class="btn primary" disabled={sending || answer === ""}>Record for good</button>
        <button type="button" class="btn ghost" onClick={() => setFree(true)}>By free hand</button>
        <button type="button" class="btn ghost" onClick={close}>Cancel</button>
      </p>
    </form>
  );
}

/** A free-hand observation: which causes it rules out is shown before it is sent. */
function Recorder({ id, log, close }: { id: string; log: SessionLog; close: () => void }): JSX.Element {
  const [observation, setObservation] = useState("");
  const [note, setNote] = useState("");
  const [ids, setIds] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [sending, setSending] = useState(false);
  const named = useMemo(() => ids.split(/[\s,]+/).filter(Boolean), [ids]);
  const known = new Set(log.universe);
  const unknown = log.withIds ? named.filter((each) => !known.has(each)) : [];
  const alive = log.withIds ? named.filter((each) => known.has(each) && log.whenGone(each) < 0) : named;
  const left = log.left.at(log.head);
  const send = async (): Promise<void> => {
    setSending(true);
    try {
      await post(`v1/sessions/${encodeURIComponent(id)}/eliminate`, {
        source_id: `human://${identity.value?.id ?? "console"}`,
        observation_id: observation.trim(),
        eliminated: [...new Set(named)].sort(),
        justification: note.trim() ? { note: note.trim() } : null,
      }, { "Idempotency-Key": crypto.randomUUID(), Prefer: "return=minimal" });
      close();
    } catch (problem) {
      setError(problem instanceof ApiError ? problem : String(problem));
    } finally {
      setSending(false);
    }
  };
  return (
    <form class="pad recorder" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      <label>What you looked at<input class="field" required value={observation} placeholder="disk-usage-of-db" onInput={(event) => setObservation(event.currentTarget.value)} /></label>
      <label>Causes that it rules out<textarea class="field mono" required rows={3} value={ids} placeholder="ids, by space or comma" onInput={(event) => setIds(event.currentTarget.value)} /></label>
      <label>Note<input class="field" value={note} onInput={(event) => setNote(event.currentTarget.value)} /></label>
      {named.length > 0 && (
        <p class="num">
          Rules out <b>{count(alive.length)}</b>{log.withIds && <>, leaves <b class={left - alive.length === 0 ? "contra" : "holds"}>{count(left - alive.length)}</b>, {bits(bitsOf(left) - bitsOf(Math.max(1, left - alive.length)))} bits</>}
          {unknown.length > 0 && <span class="owed"> · {plural(unknown.length, "id")} not of this universe</span>}
        </p>
      )}
      {error !== null && <Failure error={error} />}
      <p class="row">
        <button type="submit" class="btn primary" disabled={sending || named.length === 0 || observation.trim() === ""}>Record for good</button>
        <button type="button" class="btn ghost" onClick={close}>Cancel</button>
      </p>
    </form>
  );
}
