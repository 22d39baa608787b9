// The causal graph of a session as the page holds it: numbers for nodes and arcs, each arc from cause to effect.

import { api, readPages, type Schemas } from "../api/client";
import { ApiError } from "../api/errors";
import type { SessionLog } from "./log";

export interface GraphNode {
  id: string;
  label: string;
  type: string;
  /** In the graph, and not in the universe of the session. */
  outside: boolean;
}

export interface Arc {
  id: string;
  cause: number;
  effect: number;
  type: string;
}

export interface CausalGraph {
  /** The version of the graph that the session is anchored at; what is in it never changes. */
  version: string;
  nodes: GraphNode[];
  arcs: Arc[];
  /** Edges that cannot be drawn, because an end of theirs is no node of the graph. */
  loose: number;
  index: Map<string, number>;
}

type NodeItem = Schemas["GraphNodeItem"];
type EdgeItem = Omit<Schemas["GraphEdgeItem"], "state">;
type PathEdge = Schemas["PathEdge"];

/** More than this is not drawn: the list alone would be of no use either. */
export const MAX_NODES = 6_000;
export const MAX_EDGES = 30_000;
const PAGE = 1000;

/** Cause and effect of an edge: what a thing depends on can break it; every other edge points at the effect. */
export function causeFirst(edge: PathEdge): [string, string] {
  return edge.type === "DEPENDS_ON" ? [edge.target, edge.source] : [edge.source, edge.target];
}

export function buildGraph(version: string, nodes: NodeItem[], edges: EdgeItem[]): CausalGraph {
  const index = new Map(nodes.map((node, at) => [node.hypothesis_id, at]));
  const arcs: Arc[] = [];
  let loose = 0;
  for (const edge of edges) {
    const [cause, effect] = causeFirst(edge).map((end) => index.get(end));
    if (cause === undefined || effect === undefined) loose += 1;
    else arcs.push({ id: edge.hypothesis_id, cause, effect, type: edge.type });
  }
  return {
    version,
    nodes: nodes.map((node) => ({ id: node.hypothesis_id, label: node.label || node.hypothesis_id, type: node.type, outside: node.state === "outside" })),
    arcs,
    loose,
    index,
  };
}

/** Read all pages of a graph. `shown` is told how much is there. */
export async function loadGraph(id: string, signal: AbortSignal, shown: (items: number) => void): Promise<CausalGraph> {
  const nodes: NodeItem[] = [];
  const edges: EdgeItem[] = [];
  let version = "";
  const path = { session_id: id };
  const ask = (cursor?: string) =>
    api.GET("/v1/sessions/{session_id}/graph", { params: { path, query: { limit: PAGE, cursor } }, signal });
  for await (const page of readPages(ask)) {
    nodes.push(...page.nodes);
    edges.push(...page.edges);
    version = page.causal_graph_version;
    if (nodes.length > MAX_NODES || edges.length > MAX_EDGES) {
      const most = nodes.length > MAX_NODES ? `${MAX_NODES} nodes` : `${MAX_EDGES} edges`;
      throw new ApiError({
        code: "TOO_LARGE_HERE",
        message: `a graph of more than ${most} is too large to draw`,
        details: { next: "ask GET /explain and GET /impact of the session: they search all of it" },
      });
    }
    shown(nodes.length + edges.length);
  }
  return buildGraph(version, nodes, edges);
}

/** The event that ruled each of them out; -1 where none did. */
export function listDeaths(log: SessionLog, ids: readonly { id: string }[]): Int32Array {
  return Int32Array.from(ids, (each) => log.whenGone(each.id));
}

export type NodeState = "alive" | "gone" | "outside";

export function stateAt(node: GraphNode, death: number, at: number): NodeState {
  if (node.outside) return "outside";
  return death >= 0 && death <= at ? "gone" : "alive";
}

export function countStates(graph: CausalGraph, deaths: Int32Array, at: number): Record<NodeState, number> {
  const counts = { alive: 0, gone: 0, outside: 0 };
  graph.nodes.forEach((node, n) => {
    counts[stateAt(node, deaths[n]!, at)] += 1;
  });
  return counts;
}

/** Nodes in which a text occurs: by name, id or type. Null for no text, which is not the same as none found. */
export function findNodes(graph: CausalGraph, text: string): Set<number> | null {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const found = new Set<number>();
  graph.nodes.forEach((node, n) => {
    if (`${node.label} ${node.id} ${node.type}`.toLowerCase().includes(wanted)) found.add(n);
  });
  return found;
}

/** Node types as the graph has them, the most frequent first. */
export function countTypes(graph: CausalGraph): [string, number][] {
  const counts = new Map<string, number>();
  for (const node of graph.nodes) counts.set(node.type, (counts.get(node.type) ?? 0) + 1);
  return [...counts].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
}

/** The arcs that paths of the server go along, as numbers. */
export function listPathArcs(graph: CausalGraph, paths: { edges: PathEdge[] }[]): Set<number> {
  const wanted = new Set(paths.flatMap((path) => path.edges.map((edge) => [...causeFirst(edge), edge.type].join("\0"))));
  const found = new Set<number>();
  if (wanted.size === 0) return found;
  graph.arcs.forEach((arc, n) => {
    if (wanted.has([graph.nodes[arc.cause]!.id, graph.nodes[arc.effect]!.id, arc.type].join("\0"))) found.add(n);
  });
  return found;
}
