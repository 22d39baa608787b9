// The ledger: streams, their heads, verification in this browser of a stream or of an export file, and export.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, isOperator, may, read, saveFile } from "../api/client";
import { clock, count, day, nameSession, plural, short } from "../ui/format";
import { LiveChip, Page } from "../ui/frame";
import { useFresh } from "../ui/fresh";
import { Icon } from "../ui/icons";
import { useNews } from "../ui/news";
import { Failure, Panel, Skeleton, useLoad } from "../ui/parts";
import { Link } from "../ui/router";
import { exportStream, placeOf, verifyFile, verifyStream } from "../verify/client";
import { decodeFile } from "../verify/reading";
import { readKept, type FileVerdict, type Verdict } from "../verify/verify";
import { Finding } from "./session/side";
import { listSpaces } from "./actions/model";

const PAGE = 100;
const SHOWN = "events.seq,events.event_id,events.event_hash,events.ts,events.verb,next_cursor";

async function readEntries(stream: string, cursor: string | undefined) {
  const query = { limit: PAGE, cursor, fields: SHOWN };
  const place = placeOf(stream);
  if ("space" in place) {
    const params = { path: { space_id: place.space }, query };
    return read(api.GET("/v1/spaces/{space_id}/audit", { params }));
  }
  const params = { path: { session_id: place.session }, query };
  return read(api.GET("/v1/sessions/{session_id}/audit", { params }));
}

export function LedgerPage({ stream }: { stream: string | undefined }): JSX.Element {
  const news = useNews(stream ? placeOf(stream) : { every: {} });
  return (
    <Page title="Ledger" chips={stream && <span class="chip wide mono">{stream}</span>} status={<LiveChip pulse={news.pulse} retry={news.retry} />}>
      <div class="cols">
        <div>{stream ? <Entries key={stream} stream={stream} news={news.count} /> : <Streams news={news.count} />}</div>
        <div>
          {stream && <StreamCheck key={stream} stream={stream} />}
          <FileCheck />
        </div>
      </div>
    </Page>
  );
}

function Streams({ news }: { news: number }): JSX.Element {
  const streams = useLoad(async () => {
    const newest = { params: { query: { limit: 100, order: "newest" } } } as const;
    const [sessions, spaces] = await Promise.all([
      may("belief:read") ? read(api.GET("/v1/sessions", newest)).then((page) => page.sessions) : [],
      // The entries of a space are for operators.
      may("spaces:read") && isOperator() ? listSpaces() : [],
    ]);
    return [...spaces.map((each) => ({ name: `space:${each}`, about: "space", entries: null as number | null })), ...sessions.map((each) => ({ name: each.session_id, about: nameSession(each), entries: each.head_seq + 1 }))];
  }, [news]);
  const { shown, chip } = useFresh(streams.value ?? [], (each) => each.name);
  return (
    <Panel title="Streams" note="one append-only log each; the newest 100 sessions">
      {streams.error !== null && <Failure error={streams.error} retry={streams.again} />}
      {!streams.value && streams.loading && <Skeleton height={200} />}
      {chip}
      <ul class="facts">
        {shown.map((each) => <li key={each.name}><Link class="mono under wrap" to={`ledger/${encodeURIComponent(each.name)}`}>{each.name}</Link><span class="f2 clip">{each.about}</span><span class="f3 num">{each.entries === null ? "" : plural(each.entries, "entry", "entries")}</span></li>)}
      </ul>
    </Panel>
  );
}

function Entries({ stream, news }: { stream: string; news: number }): JSX.Element {
  const [cursors, setCursors] = useState<(string | undefined)[]>([undefined]);
  const cursor = cursors[cursors.length - 1];
  const page = useLoad(() => readEntries(stream, cursor), [stream, cursor, news]);
  return (
    <Panel title="Entries" note={<Link to="ledger" class="under">all streams</Link>} actions={
      <span class="row">
        <button type="button" class="btn" disabled={cursors.length === 1} onClick={() => setCursors(cursors.slice(0, -1))}>Earlier</button>
        <button type="button" class="btn" disabled={!page.value?.next_cursor} onClick={() => setCursors([...cursors, page.value!.next_cursor!])}>Later</button>
      </span>
    }>
      {page.error !== null && <Failure error={page.error} retry={page.again} />}
      {!page.value && page.loading && <Skeleton height={300} />}
      {page.value && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of entries">
          <table>
            <thead><tr><th>Entry</th><th>Time</th><th>Verb</th><th>Event id</th><th>Hash</th></tr></thead>
            <tbody>{page.value.events.map((each) => <tr key={each.seq}><td class="num">#{each.seq}</td><td class="num nowrap f2">{day(Date.parse(each.ts))} {clock(Date.parse(each.ts))}</td><td>{each.verb}</td><td class="mono f2">{each.event_id.slice(0, 8)}</td><td class="mono">{short(each.event_hash)}</td></tr>)}</tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function StreamCheck({ stream }: { stream: string }): JSX.Element {
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [progress, setProgress] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const run = (): void => {
    setProgress("reading");
    setError(null);
    const tell = (done: number, of: number): void => setProgress(`${count(done)} of ${count(of)}`);
    verifyStream(stream, tell).then(setVerdict, setError).finally(() => setProgress(null));
  };
  const save = async (): Promise<void> => {
    try {
      saveFile(`${stream.replace(":", "-")}.jsonl`, await exportStream(stream), "application/jsonl");
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <Panel title="This stream" icon={verdict?.state === "holds" ? "verified" : verdict?.state === "broken" ? "broken" : "unverified"} tone={verdict?.state === "holds" ? "holds" : verdict?.state === "broken" ? "refused" : "f3"}>
      <div class="body verdict">
        {progress && <p role="status">Recomputing {progress}</p>}
        {error !== null && <Failure error={error} />}
        {verdict && <Finding verdict={verdict} />}
        <p class="row"><button type="button" class="btn" disabled={progress !== null} onClick={run}>Verify</button><button type="button" class="btn ghost" onClick={() => void save()}><Icon of="down" />Export</button></p>
      </div>
    </Panel>
  );
}

function FileCheck(): JSX.Element {
  const [file, setFile] = useState<File | null>(null);
  const [kept, setKept] = useState("");
  const [found, setFound] = useState<FileVerdict | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let current = true;
    setError(null);
    setFound(null);
    if (file === null) return;
    const check = async (): Promise<FileVerdict> => verifyFile(decodeFile(await file.arrayBuffer()), readKept(kept), () => undefined);
    check().then((verdict) => current && setFound(verdict), (problem: unknown) => current && setError(problem));
    return () => {
      current = false;
    };
  }, [file, kept]);
  return (
    <Panel title="An export file" note="checked here, sent nowhere">
      <div class="body verdict" data-testid="file-verdict">
        <label>File of <code>cmbs export</code><input type="file" accept=".jsonl,.json,.txt" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} /></label>
        <label class="field"><span class="f3">Heads kept elsewhere: a hash, or lines of <code>cmbs heads</code></span><textarea class="mono" rows={2} value={kept} onInput={(event) => setKept(event.currentTarget.value)} /></label>
        {error !== null && <Failure error={error} />}
        {found?.problem && <p class="refused">{found.problem.line > 0 ? <b>Line {found.problem.line}: </b> : null}{found.problem.reason}</p>}
        {found?.streams.map((each) => <div key={each.stream}><p class="mono clip">{each.stream}</p><Finding verdict={each} ofFile /></div>)}
      </div>
    </Panel>
  );
}
