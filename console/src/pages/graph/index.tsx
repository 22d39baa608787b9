// The causal graph of an incident: what is ruled out stays where it was. The page is a function of (graph, events, at).

import type { JSX } from "preact";
import { memo } from "preact/compat";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { findNext, hasStatus } from "../../api/errors";
import { countStates, countTypes, findNodes, listDeaths, listPathArcs, loadGraph, type CausalGraph } from "../../model/graph";
import type { Layout } from "../../model/layout";
import type { SessionLog } from "../../model/log";
import { count, plural } from "../../ui/format";
import { LiveChip, Page, lastSession } from "../../ui/frame";
import { Icon } from "../../ui/icons";
import { useKeys } from "../../ui/keys";
import { Empty, Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link, place, setQuery } from "../../ui/router";
import { titleOf, useMoment, useSession } from "../session/index";
import { Player } from "../session/player";
import { WhyRuledOut } from "../session/why";
import "../../styles/graph.css";
import { NodeList, listRows } from "./list";
import { findLayout } from "./places";
import type { GoneMode, Scene } from "./painter";
import { Anchor, Chosen, Explained, RuledOutLast, TypeMark, useSearches } from "./side";
import { GraphView } from "./view";

interface Drawn {
  graph: CausalGraph;
  layout: Layout;
}

/** Drawn again when its session changes; what the address says is read below, where it is needed. */
export const GraphPage = memo(function GraphPage({ id }: { id: string }): JSX.Element {
  const session = useSession(id);
  const { log, size } = session;
  lastSession.value = id;
  const [read, setRead] = useState(0);
  const provider = log?.provider ?? null;
  const loaded = useLoad(async (signal): Promise<Drawn | null> => {
    if (!log || provider) return null;
    const graph = await loadGraph(id, signal, setRead);
    const ref = log.ontology.causal_graph_ref ?? "";
    return { graph, layout: await findLayout(`${ref}@${graph.version}/${graph.nodes.length}/${graph.arcs.length}`, graph) };
  }, [id, log, session.done]);
  const again = (): void => {
    if (session.error !== null) session.again();
    loaded.again();
  };
  const error = session.error ?? loaded.error;
  return (
    <Page
      title="Causal graph"
      crumbs={
        <>
          <Link to="" class="f3 wide">Cases</Link>
          <span class="f3 wide" aria-hidden="true">/</span>
          <Link to={`cases/${encodeURIComponent(id)}`} class="f2 wide clip crumb" title={id}>{titleOf(log, id.slice(0, 8))}</Link>
        </>
      }
      chips={loaded.value && <span class="chip wide">anchored at version {loaded.value.graph.version}</span>}
      status={<LiveChip pulse={session.pulse} retry={session.retry} />}
    >
      {provider || hasStatus(error, 400) ? (
        <NoGraph id={id} error={error} provider={provider?.id ?? null} />
      ) : error !== null ? (
        <Panel title="The graph cannot be shown"><Failure error={error} retry={again} /></Panel>
      ) : !log || !loaded.value ? (
        <div class="gl">
          <Panel title="Graph" note={read > 0 ? `${count(read)} nodes and edges so far` : undefined}><Skeleton height={600} /></Panel>
          <Panel title="Nodes"><Skeleton height={300} /></Panel>
        </div>
      ) : loaded.value.graph.nodes.length === 0 ? (
        <Panel title="An empty graph">
          <Empty title={`Version ${loaded.value.graph.version} of the graph has no nodes`}>
            <p class="f2">Import what is known with <code>cmbs tee import</code>, then declare a session over the new version.</p>
          </Empty>
        </Panel>
      ) : (
        <Body key={id} id={id} log={log} size={size} {...loaded.value} following={session.pulse?.state === "live"} />
      )}
    </Page>
  );
});

function NoGraph({ id, error, provider }: { id: string; error: unknown; provider: string | null }): JSX.Element {
  const next = findNext(error);
  return (
    <Panel title="No graph">
      <Empty title="This session has no causal graph">
        <p class="f2">{provider ? `Its causes come from ${provider}, and not from a graph in Tee.` : error instanceof Error && error.message}</p>
        <p class="f2">{next !== null ? `${next[0]?.toUpperCase()}${next.slice(1)}.` : "Sessions that are declared without a provider, on a server with Tee, have one."}</p>
        <pre class="args">{"cmbs tee serve --port 50051\ncmbs serve --tee 127.0.0.1:50051"}</pre>
        <Link to={`cases/${encodeURIComponent(id)}`} class="btn">Back to the session</Link>
      </Empty>
    </Panel>
  );
}

const MODES: [GoneMode, string][] = [["struck", "Struck"], ["faint", "Faint"], ["hidden", "Hidden"]];

function Body({ id, log, size, graph, layout, following }: Drawn & { id: string; log: SessionLog; size: number; following: boolean }): JSX.Element {
  const { at, past, move, step } = useMoment(log, size);
  const [gone, setGone] = useState<GoneMode>("struck");
  const [hiddenTypes, setHiddenTypes] = useState<ReadonlySet<string>>(new Set());
  const [text, setText] = useState("");
  const [turn, setTurn] = useState(0);
  const view = useRef<GraphView | null>(null);
  const finder = useRef<HTMLInputElement>(null);

  const query = place.value.query;
  const selectedId = query.get("node");
  const selected = selectedId === null ? null : (graph.index.get(selectedId) ?? null);
  const marked = query.get("symptoms") ?? "";
  const symptoms = useMemo(() => readSymptoms(marked, graph), [marked, graph]);
  const select = (node: number | null): void => setQuery({ node: node === null ? null : graph.nodes[node]!.id });
  const toggleSymptom = (node: number): void => {
    const next = symptoms.includes(node) ? symptoms.filter((each) => each !== node) : [...symptoms, node];
    setQuery({ symptoms: next.length === 0 ? null : JSON.stringify(next.map((each) => graph.nodes[each]!.id)) });
  };

  const deaths = useMemo(() => listDeaths(log, graph.nodes), [log, size, graph]);
  const arcDeaths = useMemo(() => listDeaths(log, graph.arcs), [log, size, graph]);
  const matches = useMemo(() => findNodes(graph, text), [graph, text]);
  const searches = useSearches(id, graph, selected, symptoms, size);
  const pathArcs = useMemo(() => listPathArcs(graph, searches.paths), [graph, searches.paths]);
  const marks = useMemo(() => new Set(symptoms), [symptoms]);
  const scene: Scene = { at, deaths, arcDeaths, gone, hiddenTypes, matches, selected, symptoms: marks, pathArcs };
  const rows = useMemo(() => listRows(graph, deaths, at, { gone, hiddenTypes, matches }), [graph, deaths, at, gone, hiddenTypes, matches]);
  const counts = countStates(graph, deaths, at);

  const cycle = (): void => setGone(MODES[(MODES.findIndex(([mode]) => mode === gone) + 1) % MODES.length]![0]);
  const walk = (by: number): void => {
    const from = rows.findIndex((row) => row.node === selected);
    const next = rows[from < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, from + by))];
    if (next) select(next.node);
  };
  const showMatch = (): void => {
    const found = rows.filter((row) => matches?.has(row.node));
    const next = found[turn % Math.max(1, found.length)];
    if (!next) return;
    select(next.node);
    view.current?.centre(next.node);
    setTurn(turn + 1);
  };
  useKeys({
    "/": () => finder.current?.focus(),
    j: () => walk(1),
    k: () => walk(-1),
    h: cycle,
    f: () => view.current?.fit(),
    "+": () => view.current?.zoomBy(1.3),
    "-": () => view.current?.zoomBy(1 / 1.3),
    c: () => selected !== null && view.current?.centre(selected),
    s: () => selected !== null && toggleSymptom(selected),
    Escape: () => select(null),
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    "Shift+ArrowLeft": () => step(-10),
    "Shift+ArrowRight": () => step(10),
    Home: () => move(0),
    End: () => move(log.head),
  });
  return (
    <div class="gl">
      <section class="panel graph" aria-label="Graph">
        <header>
          <span class="key states">
            <span><Icon of="alive" tone="holds" /> could be the cause <b class="num">{count(counts.alive)}</b></span>
            <span><Icon of="gone" tone="gone-mark" /> <s>ruled out</s> <b class="num">{count(counts.gone)}</b></span>
            {counts.outside > 0 && <span><Icon of="ring" /> not in question <b class="num">{count(counts.outside)}</b></span>}
            <span><Icon of="bell" tone="owed" /> symptom</span>
            <span class="wide">dotted: goes back in a circle</span>
          </span>
          <span class="grow" />
          <form class="field small" role="search" aria-label="Nodes of the graph" onSubmit={(event) => { event.preventDefault(); showMatch(); }}>
            <Icon of="search" />
            <input ref={finder} type="search" aria-label="Find a node" placeholder="find a node" value={text} onInput={(event) => { setText(event.currentTarget.value); setTurn(0); }} />
            {matches ? <span class="num f3 nowrap">{matches.size === 0 ? "none" : count(matches.size)}</span> : <kbd>/</kbd>}
          </form>
        </header>
        <div class="types row" role="group" aria-label="Types of nodes">
          {countTypes(graph).map(([type, n]) => (
            <button key={type} type="button" aria-pressed={!hiddenTypes.has(type)} onClick={() => setHiddenTypes(toggle(hiddenTypes, type))}>
              <TypeMark type={type} /> {nameType(type)} <span class="num">{count(n)}</span>
            </button>
          ))}
          <span class="grow" />
          <span class="seg" role="group" aria-label="Ruled-out nodes">
            {MODES.map(([mode, label]) => <button key={mode} type="button" aria-pressed={gone === mode} onClick={() => setGone(mode)}>{label}</button>)}
          </span>
          <span class="zooms">
            <button type="button" class="btn icon ghost" aria-label="Smaller" onClick={() => view.current?.zoomBy(1 / 1.3)}>−</button>
            <button type="button" class="btn icon ghost" aria-label="Larger" onClick={() => view.current?.zoomBy(1.3)}>+</button>
            <button type="button" class="btn ghost" onClick={() => view.current?.fit()}>Whole graph <kbd>F</kbd></button>
          </span>
        </div>
        <Canvas graph={graph} layout={layout} scene={scene} view={view} choose={select} label={`Causal graph at event ${at}: ${plural(graph.nodes.length, "node")}, ${count(counts.gone)} ruled out, ${plural(graph.arcs.length, "edge")}`} />
        <Player log={log} at={at} move={move} following={!past && following} />
      </section>
      <div class="side">
        <NodeList graph={graph} log={log} rows={rows} selected={selected} select={select} isFiltered={matches !== null} />
        {selected !== null && <Chosen id={id} log={log} graph={graph} node={selected} death={deaths[selected]!} at={at} isSymptom={marks.has(selected)} toggleSymptom={() => toggleSymptom(selected)} impact={searches.impact} select={select} />}
        {selected !== null && deaths[selected]! >= 0 && deaths[selected]! <= at && <WhyRuledOut id={id} log={log} why={graph.nodes[selected]!.id} opened={null} verdict={null} />}
        <Explained graph={graph} symptoms={symptoms} explain={searches.explain} past={past} selected={selected} select={select} toggle={toggleSymptom} />
        <RuledOutLast graph={graph} log={log} deaths={deaths} at={at} select={select} />
        <Anchor graph={graph} />
      </div>
    </div>
  );
}

function readSymptoms(text: string, graph: CausalGraph): number[] {
  try {
    const ids: unknown = text === "" ? [] : JSON.parse(text);
    return Array.isArray(ids) ? ids.map((each) => graph.index.get(String(each))).filter((each) => each !== undefined) : [];
  } catch {
    // An address that was cut short.
    return [];
  }
}

function toggle(set: ReadonlySet<string>, each: string): Set<string> {
  const next = new Set(set);
  if (!next.delete(each)) next.add(each);
  return next;
}

export function nameType(type: string): string {
  return type.toLowerCase().replaceAll("_", " ");
}

function Canvas({ graph, layout, scene, view, choose, label }: Drawn & { scene: Scene; view: { current: GraphView | null }; choose: (node: number | null) => void; label: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const chooser = useRef(choose);
  chooser.current = choose;
  useEffect(() => {
    const shown = new GraphView(box.current!, graph, layout, (node) => chooser.current(node));
    view.current = shown;
    shown.show(scene);
    return () => {
      view.current = null;
      shown.destroy();
    };
  }, [graph, layout]);
  useEffect(() => view.current?.show(scene));
  return (
    <div class="canvas">
      <div ref={box} class="layers" role="img" aria-label={label} />
    </div>
  );
}
