// Why was this ruled out? A chain: cause, event, source, observation, justification, proof. Or an event in full.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, api, read, saveFile } from "../../api/client";
import { findElimination } from "../../api/errors";
import { readEvent } from "../../model/load";
import type { SessionLog } from "../../model/log";
import { clock, count, short, show, showMembers } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Failure, Monogram, Panel, Skeleton, useLoad } from "../../ui/parts";
import type { Verdict } from "../../verify/verify";
import { tell } from "./index";

interface Props {
  id: string;
  log: SessionLog;
  why: string | null;
  opened: number | null;
  verdict: Verdict | null;
}

export function WhyRuledOut({ id, log, why, opened, verdict }: Props): JSX.Element {
  if (why !== null) return <Chain key={why} id={id} log={log} why={why} verdict={verdict} />;
  if (opened !== null) return <OneEvent key={opened} id={id} log={log} seq={opened} />;
  return (
    <Panel title="Why ruled out?">
      <p class="note pad">Choose a cause to see the event that ruled it out, or an event to see its payload and hashes.</p>
    </Panel>
  );
}

type Recorded = Schemas["AuditEvent"];

/** The event that eliminated a hypothesis: known here, or asked of the server by the proof. */
async function findEvent(id: string, log: SessionLog, why: string): Promise<Recorded | null> {
  let seq = log.whenGone(why);
  if (!log.withIds) {
    try {
      const params = { path: { session_id: id }, query: { hypothesis_id: why } };
      await read(api.GET("/v1/sessions/{session_id}/proofs/membership", { params }));
      return null;
    } catch (error) {
      const found = findElimination(error);
      if (found === null) throw error;
      seq = found;
    }
  }
  return seq < 0 ? null : readEvent(id, log, seq);
}

function Chain({ id, log, why, verdict }: { id: string; log: SessionLog; why: string; verdict: Verdict | null }): JSX.Element {
  const found = useLoad(() => findEvent(id, log, why), [id, why, log.whenGone(why)]);
  const [raw, setRaw] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const event = found.value;
  const title = <>Why ruled out? <span class={event ? "mono gone" : "mono f2"}>{why}</span></>;
  if (found.error) return <Panel title={title} label="Why ruled out?"><Failure error={found.error} retry={found.again} /></Panel>;
  if (found.loading && !event) return <Panel title={title} label="Why ruled out?"><Skeleton height={190} /></Panel>;
  if (!log.has(why)) {
    return (
      <Panel title={title} label="Why ruled out?">
        <p class="pad"><Icon of="warn" tone="owed" /> This case has no cause of this id. The address may be of another case.</p>
      </Panel>
    );
  }
  if (!event) {
    return (
      <Panel title={title} label="Why ruled out?">
        <p class="pad"><Icon of="alive" tone="holds" /> It may still be the cause: no report speaks against it.</p>
      </Panel>
    );
  }
  const seq = event.seq;
  const source = log.sources[log.source.at(seq)];
  const checked = verdict !== null && (verdict.state === "holds" || verdict.seq > seq) && verdict.events > seq;
  const report = "eliminated" in event.payload ? event.payload : null;
  const probe = report?.probe;
  const download = async (): Promise<void> => {
    try {
      const params = { path: { session_id: id }, query: { hypothesis_id: why } };
      const proof = await read(api.GET("/v1/sessions/{session_id}/proofs/elimination", { params }));
      saveFile(`proof-${why}.json`, JSON.stringify(proof));
    } catch (error) {
      setProblem(error);
    }
  };
  return (
    <Panel title={title} label="Why ruled out?">
      <ol class="why">
        <li><span class="dot gone-dot" /><span class="f3">cause</span><span>{[...new Set(Object.values(log.attributes[why] ?? {}).map(show))].join(" · ") || <span class="mono">{why}</span>}</span></li>
        <li><span class="dot" /><span class="f3">event</span><span><b class="num">#{seq}</b> {event.verb} <span class="f2 num">{clock(log.time(seq))} · {count(log.left.at(seq) + log.removed.at(seq))} → {count(log.left.at(seq))}</span></span></li>
        <li><span class={`dot s${source?.colour ?? 0}`} /><span class="f3">source</span><span><Monogram source={source} /> {source?.id}{event.actor && event.actor.id !== source?.id ? <span class="f2"> by {event.actor.kind} {event.actor.id}</span> : null}</span></li>
        <li><span class="dot" /><span class="f3">observation</span><span class="mono wrap">{probe ? `${probe.probe_id} = ${show(probe.response)}` : report?.observation_id}</span></li>
        <li><span class="dot" /><span class="f3">justification</span><span class="wrap">{report?.justification ? showMembers(report.justification) : <span class="f3">none was given</span>}</span></li>
        <li>
          <span class={checked ? "dot holds-dot" : "dot"} />
          <span class="f3">proof</span>
          <span>{checked ? <span class="holds"><Icon of="verified" /> holds, recomputed here </span> : <span class="f3"><Icon of="unverified" /> not recomputed here yet </span>}<span class="mono f2">{short(event.event_hash)}</span></span>
        </li>
      </ol>
      {problem !== null && <Failure error={problem} />}
      <div class="pad row">
        <button type="button" class="btn" onClick={() => void download()}><Icon of="down" />Proof</button>
        <button type="button" class="btn ghost" aria-expanded={raw} onClick={() => setRaw(!raw)}>Payload and hashes</button>
      </div>
      {raw && <Raw event={event} />}
    </Panel>
  );
}

function OneEvent({ id, log, seq }: { id: string; log: SessionLog; seq: number }): JSX.Element {
  const event = useLoad(() => readEvent(id, log, seq), [id, seq]);
  return (
    <Panel title={`Event #${seq}`} note={<span class="clip">{tell(log, seq)}</span>}>
      {event.error ? <Failure error={event.error} retry={event.again} /> : event.value ? <Raw event={event.value} /> : <Skeleton height={200} />}
    </Panel>
  );
}

const MOST_SHOWN = 4000;

function Raw({ event }: { event: Recorded }): JSX.Element {
  const text = JSON.stringify(event.payload, null, 2);
  const hashes = ["event_hash", "prev_event_hash", "survivors_before_hash", "survivors_after_hash"] as const;
  return (
    <div class="raw">
      <dl class="mini">
        {hashes.map((name) => (
          <div key={name} class="pair"><dt>{name.replaceAll("_", " ")}</dt><dd class="mono wrap">{event[name]}</dd></div>
        ))}
      </dl>
      <pre class="args" tabIndex={0} aria-label="Payload">{text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n… ${count(text.length - MOST_SHOWN)} characters more` : text}</pre>
      {event.outcome && <pre class="args" tabIndex={0} aria-label="Outcome">{JSON.stringify(event.outcome, null, 2)}</pre>}
    </div>
  );
}
