// The graph as a list, for keyboards and screen readers: the same nodes, states and filters.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { stateAt, type CausalGraph } from "../../model/graph";
import type { SessionLog } from "../../model/log";
import { count } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Monogram, Panel, VirtualRows } from "../../ui/parts";
import type { GoneMode } from "./painter";
import { TypeMark } from "./side";

export interface Row {
  node: number;
  /** The event that ruled it out by the shown moment; -1 where it stands. */
  gone: number;
  outside: boolean;
}

interface Filter {
  gone: GoneMode;
  hiddenTypes: ReadonlySet<string>;
  matches: ReadonlySet<number> | null;
}

/** What is to be seen, possible causes first, then the last ruled out first, then what is no cause here. */
export function listRows(graph: CausalGraph, deaths: Int32Array, at: number, filter: Filter): Row[] {
  const rows: Row[] = [];
  graph.nodes.forEach((node, n) => {
    if (filter.hiddenTypes.has(node.type) || filter.matches?.has(n) === false) return;
    const state = stateAt(node, deaths[n]!, at);
    if (state === "gone" && filter.gone === "hidden") return;
    rows.push({ node: n, gone: state === "gone" ? deaths[n]! : -1, outside: state === "outside" });
  });
  const rank = (row: Row): number => (row.outside ? 2 : row.gone >= 0 ? 1 : 0);
  return rows.sort((a, b) => rank(a) - rank(b) || b.gone - a.gone || a.node - b.node);
}

const ROW = 28;
const HEIGHT = 196;

export function NodeList({ graph, log, rows, selected, select, isFiltered }: { graph: CausalGraph; log: SessionLog; rows: Row[]; selected: number | null; select: (node: number) => void; isFiltered: boolean }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const list = box.current?.querySelector(".virtual");
    const top = rows.findIndex((row) => row.node === selected) * ROW;
    if (!list || top < 0) return;
    if (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top - (list.clientHeight - ROW) / 2;
  }, [selected]);
  return (
    <Panel title="Nodes" note={rows.length === graph.nodes.length ? count(rows.length) : `${count(rows.length)} of ${count(graph.nodes.length)}`}>
      {rows.length === 0 ? (
        <p class="note pad">{isFiltered ? "No node matches" : "Every node is hidden"}</p>
      ) : (
        <div ref={box}><VirtualRows total={rows.length} rowHeight={ROW} height={HEIGHT} label="Nodes" row={(n) => {
          const row = rows[n]!;
          const node = graph.nodes[row.node]!;
          const dead = row.gone >= 0;
          return (
            // By its place, not by its node: a step of the slider changes what a row says, and makes no row anew.
            <div key={n} role="listitem" class={row.node === selected ? "nrow chosen" : "nrow"}>
              <Icon of={dead ? "gone" : row.outside ? "ring" : "alive"} tone={dead ? "gone-mark" : row.outside ? "f2" : "holds"} label={dead ? "ruled out" : row.outside ? "not in question" : "could be the cause"} />
              <button type="button" class={dead ? "link clip gone" : "link clip"} aria-pressed={row.node === selected} title={node.id} onClick={() => select(row.node)}>{node.label}</button>
              {dead ? <span class="nowrap f3 num"><Monogram source={log.sources[log.source.at(row.gone)]} /> #{row.gone}</span> : <TypeMark type={node.type} named />}
            </div>
          );
        }} /></div>
      )}
    </Panel>
  );
}
