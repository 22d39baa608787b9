// The causes: alive, ruled out, all. Small universes are listed from the events; large ones are paged on the server.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, read } from "../../api/client";
import type { SessionLog } from "../../model/log";
import { count, show } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Failure, Monogram, Panel, VirtualRows } from "../../ui/parts";

type Tab = "alive" | "gone" | "all";

interface Row {
  id: string;
  /** The event that ruled it out by the shown moment; -1 where it is alive. */
  gone: number;
  about: string;
}

interface Props {
  id: string;
  log: SessionLog;
  size: number;
  at: number;
  why: string | null;
  choose: (hypothesis: string) => void;
}

const ROW = 28;
const HEIGHT = 336;

export function Causes(props: Props): JSX.Element {
  const [tab, setTab] = useState<Tab>("all");
  const [text, setText] = useState("");
  const { log, at } = props;
  const left = log.left.at(at);
  const tabs: [Tab, string, number][] = [["alive", "Alive", left], ["gone", "Ruled out", log.universeSize - left], ["all", "All", log.universeSize]];
  return (
    <Panel
      title="Causes"
      actions={
        <label class="field small">
          <Icon of="search" />
          <input type="search" aria-label="Find a cause" placeholder="id, label, kind" maxLength={200} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
      }
      note={
        <span class="tabs" role="group" aria-label="Which causes">
          {tabs.map(([name, label, n]) => (
            (log.withIds || name !== "all") && (
              <button key={name} type="button" aria-pressed={tab === name || (!log.withIds && tab === "all" && name === "alive")} onClick={() => setTab(name)}>
                {label} <span class="num">{count(n)}</span>
              </button>
            )
          ))}
        </span>
      }
    >
      {log.withIds ? <Listed {...props} tab={tab} text={text} /> : <Paged {...props} tab={tab === "gone" ? "gone" : "alive"} text={text.trim()} />}
    </Panel>
  );
}

function describeAttributes(attributes: Record<string, unknown> | undefined): string {
  return attributes ? [...new Set(Object.values(attributes).map(show))].join(" · ") : "";
}

function Listed({ log, size, at, why, choose, tab, text }: Props & { tab: Tab; text: string }): JSX.Element {
  const rows = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const found: Row[] = [];
    for (const id of log.universe) {
      const gone = log.whenGone(id);
      const dead = gone >= 0 && gone <= at;
      if ((tab === "alive" && dead) || (tab === "gone" && !dead)) continue;
      const about = describeAttributes(log.attributes[id]);
      if (wanted && !`${id} ${about}`.toLowerCase().includes(wanted)) continue;
      found.push({ id, gone: dead ? gone : -1, about });
    }
    // The living first; then the last ruled out first.
    return tab === "alive" ? found : found.sort((a, b) => (a.gone < 0 ? Infinity : a.gone) < (b.gone < 0 ? Infinity : b.gone) ? 1 : -1);
  }, [log, size, at, tab, text]);
  if (rows.length === 0) return <p class="note pad">{text ? "No cause matches" : tab === "alive" ? "Nothing is left" : "None"}</p>;
  return <VirtualRows total={rows.length} rowHeight={ROW} height={HEIGHT} label="Causes" row={(n) => <CauseRow key={rows[n]!.id} row={rows[n]!} log={log} chosen={rows[n]!.id === why} choose={choose} first={n === 0} />} />;
}

function CauseRow({ row, log, chosen, choose, first }: { row: Row; log: SessionLog; chosen: boolean; choose: (id: string) => void; first: boolean }): JSX.Element {
  const dead = row.gone >= 0;
  return (
    <div role="listitem" class={chosen ? "crow chosen" : "crow"}>
      <Icon of={dead ? "gone" : "alive"} tone={dead ? "gone-mark" : "holds"} label={dead ? "ruled out" : "alive"} />
      <button type="button" id={first ? "causes" : undefined} class={dead ? "link mono gone clip" : "link mono clip"} onClick={() => choose(row.id)} aria-pressed={chosen} title={row.id}>
        {row.id}
      </button>
      <span class={dead ? "clip gone" : "clip f2"}>{row.about}</span>
      {dead ? (
        <span class="nowrap f3 num"><Monogram source={log.sources[log.source.at(row.gone)]} /> #{row.gone}</span>
      ) : <span />}
    </div>
  );
}

const PAGE = 200;

/** A page at a time, as far as one scrolls; the moment is fixed by `at`, so that pages fit each other. */
function Paged({ id, log, at, why, choose, tab, text }: Props & { tab: "alive" | "gone"; text: string }): JSX.Element {
  const [rows, setRows] = useState<Row[]>([]);
  const [more, setMore] = useState(true);
  const [error, setError] = useState<unknown>(null);
  const cursor = useRef<string | null>(null);
  const busy = useRef(false);
  const round = useRef(0);
  const load = async (): Promise<void> => {
    if (busy.current) return;
    busy.current = true;
    const mine = round.current;
    try {
      // A page of a search may be empty although others follow.
      let found = 0;
      do {
        const page = await readPage(id, tab, at, text, cursor.current);
        if (mine !== round.current) return;
        cursor.current = page.cursor;
        found = page.rows.length;
        setRows((before) => [...before, ...page.rows]);
        setMore(page.cursor !== null);
        setError(null);
      } while (found === 0 && cursor.current !== null);
    } catch (problem) {
      if (mine === round.current) setError(problem);
    } finally {
      if (mine === round.current) busy.current = false;
    }
  };
  useEffect(() => {
    round.current += 1;
    busy.current = false;
    cursor.current = null;
    setRows([]);
    setMore(true);
    const timer = setTimeout(() => void load(), 150);
    return () => clearTimeout(timer);
  }, [id, tab, at, text]);
  if (error !== null) return <Failure error={error} retry={() => void load()} />;
  return (
    <>
      <VirtualRows
        total={rows.length}
        rowHeight={ROW}
        height={HEIGHT}
        label="Causes"
        row={(n) => <CauseRow key={rows[n]!.id} row={rows[n]!} log={log} chosen={rows[n]!.id === why} choose={choose} first={n === 0} />}
        reach={(_, last) => {
          if (more && rows.length > 0 && last >= rows.length - 20) void load();
        }}
      />
      <p class="note pad num" role="status">{more ? (rows.length === 0 && text ? "searching" : `${count(rows.length)} ${text ? "found" : "loaded"}, more as you scroll`) : text && rows.length === 0 ? "No cause matches" : `${count(rows.length)} ${text ? "found" : "in all"}`}</p>
    </>
  );
}

function aboutOf({ attributes }: Pick<SessionLog, "attributes">, id: string): string {
  return describeAttributes(attributes[id]);
}

async function readPage(id: string, tab: "alive" | "gone", at: number, text: string, cursor: string | null): Promise<{ rows: Row[]; cursor: string | null }> {
  const path = { session_id: id };
  const query = { limit: PAGE, text: text || undefined, cursor: cursor ?? undefined };
  if (tab === "alive") {
    const params = { path, query: { ...query, at: String(at) } };
    const page = await read(api.GET("/v1/sessions/{session_id}/survivors", { params }));
    const rows = page.survivors.map((each) => ({ id: each, gone: -1, about: aboutOf(page, each) }));
    return { rows, cursor: page.next_cursor };
  }
  const params = { path, query: { ...query, from: "0", to: String(at) } };
  const page = await read(api.GET("/v1/sessions/{session_id}/diff", { params }));
  const rows: Row[] = [];
  for (const { kind, id, seq } of page.changes) {
    if (kind === "eliminated" && id !== null) rows.push({ id, gone: seq, about: aboutOf(page, id) });
  }
  return { rows, cursor: page.next_cursor };
}
