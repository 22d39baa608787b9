// Beside the graph: the chosen node, what it can affect, what can explain symptoms, and the anchor.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { api, read, type Schemas } from "../../api/client";
import { stateAt, type CausalGraph } from "../../model/graph";
import type { SessionLog } from "../../model/log";
import { count, plural } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Failure, type Loaded, Monogram, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link } from "../../ui/router";

const DEPTH = 16;
const MOST_ASKED = 200;
const MOST_SHOWN = 8;
/** So many symptoms a search takes. */
const MOST_SYMPTOMS = 100;

const MARKS: Record<string, JSX.Element> = {
  SERVICE: <circle cx="8" cy="8" r="5" />,
  DEPENDENCY: <path d="M8 2 14 8 8 14 2 8z" />,
  INFRASTRUCTURE: <path d="M3.2 3.2h9.6v9.6H3.2z" />,
  MECHANISM: <path d="M8 2.4 13.8 12.8H2.2z" />,
};

/** The shape that nodes of a type have. */
export function TypeMark({ type, named = false }: { type: string; named?: boolean }): JSX.Element {
  return (
    <svg class="g f3" viewBox="0 0 16 16" {...(named ? { role: "img", "aria-label": type.toLowerCase().replaceAll("_", " ") } : { "aria-hidden": "true" })}>
      {MARKS[type] ?? <path d="M5 3h6l3 5-3 5H5L2 8z" />}
    </svg>
  );
}

type Found = Schemas["FoundNode"];
type SearchPage = Schemas["GraphSearchPage"];

export interface Searches {
  impact: Loaded<SearchPage | null>;
  explain: Loaded<SearchPage | null>;
  paths: Found["paths"];
}

/** What the server finds: what the chosen node can affect, and what can explain the symptoms. Both are as of now. */
export function useSearches(id: string, graph: CausalGraph, selected: number | null, symptoms: number[], size: number): Searches {
  const path = { session_id: id };
  const asked = { max_depth: DEPTH, limit: MOST_ASKED };
  const impact = useLoad(async (signal): Promise<SearchPage | null> => {
    if (selected === null) return null;
    const query = { ...asked, node: graph.nodes[selected]!.id };
    return read(api.GET("/v1/sessions/{session_id}/impact", { params: { path, query }, signal }));
  }, [id, graph, selected, size]);
  const explain = useLoad(async (signal): Promise<SearchPage | null> => {
    if (symptoms.length === 0) return null;
    const query = { ...asked, symptom: symptoms.slice(0, MOST_SYMPTOMS).map((each) => graph.nodes[each]!.id) };
    return read(api.GET("/v1/sessions/{session_id}/explain", { params: { path, query }, signal }));
  }, [id, graph, symptoms, size]);
  const chosen = selected === null ? null : graph.nodes[selected]!.id;
  const paths = useMemo(() => {
    if (chosen === null) return [];
    // Where symptoms are marked, the way to them is the question; else all that a node can affect.
    const to = explain.value?.results.find((each) => each.hypothesis_id === chosen);
    return to ? to.paths : (impact.value?.results.flatMap((each) => each.paths) ?? []);
  }, [chosen, explain.value, impact.value]);
  return { impact, explain, paths };
}

function hops(found: Found): number {
  return Math.min(...found.paths.map((path) => path.edges.length));
}

export function Chosen({ id, log, graph, node, death, at, isSymptom, toggleSymptom, impact, select }: {
  id: string;
  log: SessionLog;
  graph: CausalGraph;
  node: number;
  death: number;
  at: number;
  isSymptom: boolean;
  toggleSymptom: () => void;
  impact: Loaded<SearchPage | null>;
  select: (node: number | null) => void;
}): JSX.Element {
  const item = graph.nodes[node]!;
  const state = stateAt(item, death, at);
  const words = { alive: "could be the cause", gone: "was ruled out", outside: "is not in question" }[state];
  const found = impact.value;
  // Tee's own two are said already.
  const attributes = Object.entries(log.attributes[item.id] ?? {}).filter(([name]) => name !== "label" && name !== "type");
  return (
    <Panel
      title={<span class={state === "gone" ? "gone" : ""}>{item.label}</span>}
      label="Chosen node"
      icon={state === "gone" ? "gone" : state === "alive" ? "alive" : "ring"}
      tone={state === "gone" ? "gone-mark" : state === "alive" ? "holds" : "f2"}
      actions={<button type="button" class="btn icon ghost" aria-label="Choose no node" onClick={() => select(null)}><Icon of="cross" /></button>}
    >
      <dl class="mini pad">
        <div class="pair"><dt>it</dt><dd>{words}</dd></div>
        <div class="pair"><dt>type</dt><dd>{item.type.toLowerCase().replaceAll("_", " ")}</dd></div>
        <div class="pair"><dt>hypothesis</dt><dd class="mono wrap">{item.id}</dd></div>
        {attributes.slice(0, 4).map(([name, value]) => <div class="pair" key={name}><dt>{name}</dt><dd class="wrap">{String(value)}</dd></div>)}
        {state === "gone" && <div class="pair"><dt>ruled out</dt><dd><Monogram source={log.sources[log.source.at(death)]} /> at <Link to={`cases/${encodeURIComponent(id)}?why=${encodeURIComponent(item.id)}`} class="under num">event {death}</Link></dd></div>}
        <div class="pair"><dt>can affect</dt><dd>{state === "gone" ? <span class="f3">what is ruled out is on no path</span> : found ? plural(found.total, "node") : "…"}</dd></div>
      </dl>
      {impact.error !== null && <Failure error={impact.error} retry={impact.again} />}
      {state !== "gone" && found && found.results.length > 0 && (
        <ol class="hits" aria-label="What it can affect">
          {found.results.slice(0, MOST_SHOWN).map((each) => (
            <li key={each.hypothesis_id}>
              <button type="button" class="link clip" onClick={() => select(graph.index.get(each.hypothesis_id) ?? null)}>{each.label || each.hypothesis_id}</button>
              <span class="f3 num nowrap">{plural(hops(each), "step")}</span>
            </li>
          ))}
          {found.total > MOST_SHOWN && <li class="f3">{count(found.total - MOST_SHOWN)} more{found.is_cut && ", and some beyond the search"}</li>}
        </ol>
      )}
      <div class="pad">
        <button type="button" class="btn full" aria-pressed={isSymptom} onClick={toggleSymptom}><Icon of="bell" />{isSymptom ? "No symptom after all" : "It shows a symptom"} <kbd>S</kbd></button>
      </div>
    </Panel>
  );
}

export function Explained({ graph, symptoms, explain, past, selected, select, toggle }: {
  graph: CausalGraph;
  symptoms: number[];
  explain: Loaded<SearchPage | null>;
  past: boolean;
  selected: number | null;
  select: (node: number | null) => void;
  toggle: (node: number) => void;
}): JSX.Element {
  const found = explain.value;
  return (
    <Panel title="What explains it" note={symptoms.length > 0 ? plural(symptoms.length, "symptom") : undefined}>
      {symptoms.length === 0 && <p class="note pad">Choose a node where something is wrong, and mark it as a symptom: what can explain it is found along the graph.</p>}
      {symptoms.length > 0 && (
        <ul class="marks row pad" aria-label="Symptoms">
          {symptoms.map((each) => (
            <li key={each}><button type="button" class="chip owed" aria-label={`${graph.nodes[each]!.label} is no symptom`} onClick={() => toggle(each)}><Icon of="bell" />{graph.nodes[each]!.label}<Icon of="cross" /></button></li>
          ))}
        </ul>
      )}
      {explain.error !== null && <Failure error={explain.error} retry={explain.again} />}
      {symptoms.length > 0 && explain.loading && !found && <Skeleton height={90} />}
      {symptoms.length > 0 && found?.total === 0 && <p class="note pad">Nothing that is left can explain it.</p>}
      {symptoms.length > 0 && found && (
        <ol class="hits" aria-label="What can explain the symptoms">
          {found.results.slice(0, MOST_SHOWN).map((each) => {
            const node = graph.index.get(each.hypothesis_id) ?? null;
            return (
              <li key={each.hypothesis_id} class={node === selected ? "chosen" : ""}>
                <button type="button" class="link clip" aria-pressed={node === selected} onClick={() => select(node)}>{each.label || each.hypothesis_id}</button>
                <span class="f3 num nowrap">{each.paths.length} of {symptoms.length}, {hops(each) === 0 ? "itself" : plural(hops(each), "step")}</span>
              </li>
            );
          })}
          {found.total > MOST_SHOWN && <li class="f3">{count(found.total - MOST_SHOWN)} more{found.is_cut && ", and some beyond the search"}</li>}
        </ol>
      )}
      {past && symptoms.length > 0 && <p class="note pad">Searches are of now: what was ruled out since is on no path.</p>}
    </Panel>
  );
}

const LAST = 5;

export function RuledOutLast({ graph, log, deaths, at, select }: { graph: CausalGraph; log: SessionLog; deaths: Int32Array; at: number; select: (node: number) => void }): JSX.Element | null {
  const last = useMemo(() => {
    const gone: number[] = [];
    deaths.forEach((death, node) => {
      if (death >= 0 && death <= at) gone.push(node);
    });
    return gone.sort((a, b) => deaths[b]! - deaths[a]! || a - b).slice(0, LAST);
  }, [deaths, at]);
  if (last.length === 0) return null;
  return (
    <Panel title="Ruled out last">
      <ul class="hits">
        {last.map((node, n) => (
          <li key={n}>
            <button type="button" class="link clip gone" onClick={() => select(node)}>{graph.nodes[node]!.label}</button>
            <span class="f3 num nowrap"><Monogram source={log.sources[log.source.at(deaths[node]!)]} /> #{deaths[node]}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

export function Anchor({ graph }: { graph: CausalGraph }): JSX.Element {
  return (
    <Panel title="Anchor" note={`version ${graph.version}`}>
      <p class="pad f2 small">
        {plural(graph.nodes.length, "node")} and {plural(graph.arcs.length, "edge")}, as they were when the session was declared. What the graph learned since is not part of this incident, so nothing here moves.
        {graph.loose > 0 && ` ${plural(graph.loose, "edge")} cannot be drawn: an end is no node of this version.`}
      </p>
    </Panel>
  );
}
