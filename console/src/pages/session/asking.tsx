// What to ask next, with the bits that are expected of it; a person can record what they saw.

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { type Schemas, api, identity, may, read } from "../../api/client";
import { isRefused } from "../../api/errors";
import { bitsOf, type SessionLog } from "../../model/log";
import { bits, count, plural } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Failure, Panel, Skeleton, rest, useLoad } from "../../ui/parts";

export type Probe = Schemas["ProbeItem"];

export interface Probes {
  list: Probe[] | null;
  error: unknown;
  loading: boolean;
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
      const params = { path: { session_id: id }, query: { limit: 50, at: past ? String(at) : undefined } };
      return (await read(api.GET("/v1/sessions/{session_id}/probes", { params, signal }))).probes;
    } catch (error) {
      // A session whose kit is not on this server.
      if (isRefused(error)) return null;
      throw error;
    }
  }, [id, past ? at : size]);
  return { list: loaded.value, error: loaded.error, loading: loaded.loading };
}

const MOST = 4;

export function AskNext({ id, log, probes, acting }: { id: string; log: SessionLog; probes: Probes; acting: boolean }): JSX.Element {
  const [recording, setRecording] = useState(false);
  const best = probes.list?.[0]?.expected_bits ?? 1;
  const done = log.endedAt !== null;
  return (
    <Panel title="Ask next" note="expected bits">
      {probes.error !== null && <Failure error={probes.error} />}
      {probes.loading && probes.list === null && probes.error === null && <Skeleton height={120} />}
      {!probes.loading && probes.list === null && probes.error === null && <p class="note pad">No kit of this session is on this server, so no probe can be weighed.</p>}
      {probes.list?.length === 0 && <p class="note pad">{log.left.at(log.head) <= 1 ? "Nothing is left to tell apart." : "No probe tells the rest apart."}</p>}
      <ol class="next">
        {probes.list?.slice(0, MOST).map((probe) => <ProbeRow key={probe.probe_id} probe={probe} best={best} />)}
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
  const [name, where] = probe.probe_id.split("@");
  return (
    <li>
      <div class="clip">
        <span class="mono strong" title={probe.probe_id}>{name}</span>
        <div class="f2 small clip">
          {where}
          {probe.answers.length > 0 && <span class="f3"> · {probe.answers.map((each) => `${each.outcome_id} ${count(each.leaves)}`).join(", ")} left</span>}
        </div>
      </div>
      <div class="right">
        <b class="num">{bits(probe.expected_bits)}</b> <span class="f3">bits</span>
        <div class="bar"><i style={{ width: `${Math.max(2, (100 * probe.expected_bits) / Math.max(best, 1e-9))}%` }} /></div>
      </div>
    </li>
  );
}

/** Of a report: sent again, it is not recorded twice, and its answer says no more than that it was. */
function paramsOf(session_id: string) {
  return { path: { session_id }, header: { "Idempotency-Key": crypto.randomUUID(), Prefer: "return=minimal" } };
}

/** Who reports, and why. */
function saidWith(note: string): Pick<Schemas["EliminateRequest"], "source_id" | "justification"> {
  const justification = note.trim() ? { note: note.trim() } : null;
  return { source_id: `human://${identity.value?.id ?? "console"}`, justification };
}

/** The samples of a window, divided by space or comma; a dash is one that was not measured. */
export function readSamples(text: string): (number | string | null)[] {
  const parts = text.split(/[\s,;]+/).filter(Boolean);
  return parts.map((each) => (each === "-" ? null : Number.isFinite(Number(each)) ? Number(each) : each));
}

/** What was seen of a probe: what the answer leaves is shown before it is sent. */
function ProbeRecorder({ id, log, probes, close }: { id: string; log: SessionLog; probes: Probe[]; close: () => void }): JSX.Element {
  const [probeId, setProbeId] = useState(probes[0]!.probe_id);
  const [answer, setAnswer] = useState("");
  const [note, setNote] = useState("");
  const [free, setFree] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [sending, setSending] = useState(false);
  const probe = probes.find((each) => each.probe_id === probeId) ?? probes[0]!;
  const outcome = probe.answers.find((each) => each.outcome_id === answer);
  const left = log.left.at(log.head);
  if (free) return <Recorder id={id} log={log} close={close} />;
  const send = async (): Promise<void> => {
    setSending(true);
    try {
      const number = Number(answer);
      const response = probe.takes_window ? readSamples(answer) : probe.reads_numbers && !outcome && Number.isFinite(number) ? number : answer;
      const body = { ...saidWith(note), probe_id: probe.probe_id, response };
      await read(api.POST("/v1/sessions/{session_id}/observations", { params: paramsOf(id), body }));
      close();
    } catch (problem) {
      setError(problem);
    } finally {
      setSending(false);
    }
  };
  return (
    <form class="pad recorder" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      <label>Probe<select class="field" value={probe.probe_id} onChange={(event) => { setProbeId(event.currentTarget.value); setAnswer(""); }}>{probes.map((each) => <option key={each.probe_id} value={each.probe_id}>{each.probe_id}</option>)}</select></label>
      <p class="f3">{probe.prompt}</p>
      {probe.takes_window ? (
        <label>Samples<input class="field mono" required value={answer} placeholder="0.2 0.3 - 0.9" onInput={(event) => setAnswer(event.currentTarget.value)} /></label>
      ) : (
        <label>Answer<select class="field" required value={answer} onChange={(event) => setAnswer(event.currentTarget.value)}><option value="">choose</option>{probe.answers.map((each) => <option key={each.outcome_id} value={each.outcome_id}>{each.label || each.outcome_id}</option>)}</select></label>
      )}
      <label>Note<input class="field" value={note} onInput={(event) => setNote(event.currentTarget.value)} /></label>
      {outcome && (
        <p class="num">Rules out <b>{count(left - outcome.leaves)}</b>, leaves <b class={outcome.leaves === 0 ? "contra" : "holds"}>{count(outcome.leaves)}</b>, {bits(bitsOf(left) - bitsOf(Math.max(1, outcome.leaves)))} bits</p>
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
      const body = { ...saidWith(note), observation_id: observation.trim(), eliminated: [...new Set(named)].sort() };
      await read(api.POST("/v1/sessions/{session_id}/eliminate", { params: paramsOf(id), body }));
      close();
    } catch (problem) {
      setError(problem);
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
