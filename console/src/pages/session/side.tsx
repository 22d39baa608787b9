// Beside the funnel: what was refused, and verification in this browser.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { saveFile } from "../../api/client";
import type { SessionLog } from "../../model/log";
import { count, plural, short } from "../../ui/format";
import { useFresh } from "../../ui/fresh";
import { Icon } from "../../ui/icons";
import { Failure, Monogram, Panel } from "../../ui/parts";
import { exportStream, verifyStream } from "../../verify/client";
import type { Verdict } from "../../verify/verify";

const MOST_LISTED = 8;

export function Refused({ log, at, open }: { log: SessionLog; at: number; open: (seq: number) => void }): JSX.Element {
  const [all, setAll] = useState(false);
  const known = log.refusals.filter((each) => each.seq <= at).length;
  const { shown: newest, chip } = useFresh([...log.refusals].reverse(), (each) => String(each.seq));
  const listed = all ? newest.slice(0, 200) : newest.slice(0, MOST_LISTED);
  return (
    <Panel title="Refused" note={`${count(known)} on record`}>
      {listed.length === 0 && <p class="note pad">No request was refused.</p>}
      {chip}
      <ul class="next rf">
        {listed.map((each) => (
          <li key={each.seq} class={each.seq > at ? "dimmed" : ""}>
            <span class="clip"><Monogram source={log.sources[each.source]} /> {each.what} <span class="mono">{each.id}</span></span>
            <button type="button" class="link f3 num right" onClick={() => open(each.seq)}>#{each.seq}</button>
            <span class="refused">{each.reason}</span>
          </li>
        ))}
      </ul>
      {newest.length > MOST_LISTED && !all && <p class="pad"><button type="button" class="btn ghost" onClick={() => setAll(true)}>All {count(newest.length)}</button></p>}
    </Panel>
  );
}

export interface Checking {
  verdict: Verdict | null;
  progress: { done: number; of: number } | null;
  error: unknown;
  run: () => void;
}

export function useVerification(id: string, log: SessionLog, size: number): Checking {
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [progress, setProgress] = useState<{ done: number; of: number } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const busy = useRef(false);
  const run = (): void => {
    if (busy.current) return;
    busy.current = true;
    setError(null);
    setProgress({ done: 0, of: log.size });
    verifyStream(id, (done, of) => setProgress({ done, of }))
      .then(setVerdict, setError)
      .finally(() => {
        busy.current = false;
        setProgress(null);
      });
  };
  // Another session: nothing is known of it.
  useEffect(() => setVerdict(null), [id]);
  return { verdict: verdict && verdict.stream === id && size > 0 ? verdict : null, progress, error, run };
}

export function Verification({ verification, log, id }: { verification: Checking; log: SessionLog; id: string }): JSX.Element {
  const { verdict, progress, error, run } = verification;
  const [kept, setKept] = useState("");
  const behind = verdict && verdict.state === "holds" ? log.size - verdict.events : 0;
  const save = async (): Promise<void> => saveFile(`${id}.jsonl`, await exportStream(id), "application/jsonl");
  const title = !verdict ? "Verify in this browser" : verdict.state === "holds" ? "Verified in this browser" : verdict.state === "broken" ? "Broken log" : "Not checked";
  return (
    <Panel title={title} icon={!verdict || verdict.state === "unknown" ? "unverified" : verdict.state === "holds" ? "verified" : "broken"} tone={verdict?.state === "holds" ? "holds" : verdict?.state === "broken" ? "refused" : "f3"}>
      <div class="body verdict" data-testid="verdict">
        {error !== null && <Failure error={error} />}
        {progress && <p class="f2 num" role="status">Recomputing {count(progress.done)} of {count(progress.of)} events</p>}
        {!progress && verdict === null && <p class="f2">Bytes, hashes, chain, decisions and survivor commitments, recomputed here from what the server exports.</p>}
        {!progress && verdict && <Finding verdict={verdict} />}
        {!progress && behind > 0 && <p class="owed">{plural(behind, "event")} came since.</p>}
        {verdict?.state === "holds" && (
          <label class="field">
            <span class="f3 nowrap">head kept elsewhere</span>
            <input class="mono" aria-label="Head kept elsewhere" value={kept} onInput={(event) => setKept(event.currentTarget.value.trim())} />
          </label>
        )}
        {verdict?.state === "holds" && kept !== "" && (kept === verdict.head ? <p class="holds"><Icon of="check" /> the same head</p> : <p class="refused"><Icon of="cross" /> another head: {short(verdict.head)} here</p>)}
        <p class="row">
          <button type="button" class="btn" disabled={progress !== null} onClick={run}>{verdict ? "Again" : "Verify"} <kbd>V</kbd></button>
          <button type="button" class="btn ghost" onClick={() => void save()}><Icon of="down" />Export</button>
        </p>
      </div>
    </Panel>
  );
}

const KEPT = {
  last: "Its last event is the head that you kept.",
  earlier: "It still has the head that you kept. Nothing but the file vouches for the events after that head.",
  none: "Nothing that you kept vouches for it: it agrees with itself, and may have been made up.",
};

export function Finding({ verdict, ofFile = false }: { verdict: Verdict; ofFile?: boolean }): JSX.Element {
  if (verdict.state === "unknown") return <p class="f2">{verdict.reason}</p>;
  if (verdict.state === "broken") {
    return (
      <>
        <p><b class="refused">First bad event: #{verdict.seq}.</b> {plural(verdict.events, "event")} before it hold. Nothing after it is counted.</p>
        <p class="refused">{verdict.reason}</p>
        {(verdict.expected || verdict.found) && <p class="mono f2 wrap">expected {verdict.expected.length > 80 ? short(verdict.expected) : verdict.expected} found <span class="refused">{verdict.found.length > 80 ? short(verdict.found) : verdict.found}</span></p>}
      </>
    );
  }
  return (
    <>
      <p class="f2 num">
        {verdict.decided ? `${plural(verdict.events, "event")} decided again, ${count(verdict.events)} hashes, ${count(verdict.commitments)} survivor commitments.` : `${count(verdict.events)} hashes and links, and the state that they lead to.`} {verdict.milliseconds.toFixed(0)} ms.
      </p>
      <p class="mono f3">head {verdict.head.slice(0, 4)} {verdict.head.slice(4, 8)} … {verdict.head.slice(-8, -4)} {verdict.head.slice(-4)}</p>
      {ofFile && <p class={verdict.kept === "last" ? "holds" : "owed"}>{KEPT[verdict.kept]}</p>}
      {verdict.notChecked.map((each) => <p key={each} class="owed">Not checked here: {each}.</p>)}
    </>
  );
}
