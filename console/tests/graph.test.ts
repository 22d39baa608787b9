import { describe, expect, it } from "vitest";
import type { Schemas } from "../src/api/client";
import { buildGraph, countStates, countTypes, findNodes, listDeaths, listPathArcs } from "../src/model/graph";
import { layOutGraph, type LayoutInput } from "../src/model/layout";
import { SessionLog } from "../src/model/log";

const ts = "2026-01-01T00:00:00.000000Z";

function build() {
  const node = (id: string, type: string, state: Schemas["HypothesisState"] = "survivor") =>
    ({ hypothesis_id: id, label: id === "db" ? "the database" : id, type, state });
  const edge = (source: string, target: string, type: string) => ({ hypothesis_id: `edge:${source}|${target}|${type}`, source, target, type });
  return buildGraph(
    "7",
    [node("web", "SERVICE"), node("db", "DEPENDENCY"), node("full", "MECHANISM"), node("alert", "SERVICE", "outside")],
    [edge("web", "db", "DEPENDS_ON"), edge("full", "db", "MANIFESTS_AS"), edge("web", "alert", "PROPAGATES_TO"), edge("web", "elsewhere", "DEPENDS_ON")],
  );
}

describe("a causal graph", () => {
  it("has arcs from cause to effect, and counts those that cannot be drawn", () => {
    const graph = build();
    expect(graph.arcs.map((arc) => [graph.nodes[arc.cause]!.id, graph.nodes[arc.effect]!.id])).toEqual([["db", "web"], ["full", "db"], ["web", "alert"]]);
    expect(graph.loose).toBe(1);
    expect(countTypes(graph)).toEqual([["SERVICE", 2], ["DEPENDENCY", 1], ["MECHANISM", 1]]);
  });

  it("is a function of the events up to the shown one", () => {
    const log = new SessionLog(true);
    log.append({ seq: 0, event_id: "e0", verb: "DECLARE_SESSION", ts, payload: { hypotheses: ["db", "full", "web"] }, outcome: { universe_size: 3 }, delta: { eliminated: [] } });
    log.append({ seq: 1, event_id: "e1", verb: "ELIMINATE", ts, payload: { source_id: "s", observation_id: "o", eliminated: ["full"] }, outcome: null, delta: { eliminated: ["full"] } });
    const graph = build();
    const deaths = listDeaths(log, graph.nodes);
    expect([...deaths]).toEqual([-1, -1, 1, -1]);
    expect(countStates(graph, deaths, 0)).toEqual({ alive: 3, gone: 0, outside: 1 });
    expect(countStates(graph, deaths, 1)).toEqual({ alive: 2, gone: 1, outside: 1 });
  });

  it("is found by name, id and type; no text is not none found", () => {
    const graph = build();
    expect([...findNodes(graph, "DATABASE")!]).toEqual([1]);
    expect([...findNodes(graph, "mechanism")!]).toEqual([2]);
    expect(findNodes(graph, "nothing like it")!.size).toBe(0);
    expect(findNodes(graph, "  ")).toBeNull();
  });

  it("knows the arcs of a path, whichever way the edge is written", () => {
    const graph = build();
    const path = { edges: [{ source: "full", target: "db", type: "MANIFESTS_AS" }, { source: "web", target: "db", type: "DEPENDS_ON" }] };
    expect([...listPathArcs(graph, [path])]).toEqual([0, 1]);
    expect(listPathArcs(graph, []).size).toBe(0);
  });
});

function input(size: number, arcs: [number, number][]): LayoutInput {
  return { labels: new Int32Array(size).fill(9), causes: Int32Array.from(arcs, ([cause]) => cause), effects: Int32Array.from(arcs, ([, effect]) => effect) };
}

describe("a layout", () => {
  it("puts causes left of what they lead to, in columns by the longest way", () => {
    const { x, columns } = layOutGraph(input(4, [[0, 1], [1, 2], [0, 2], [3, 2]]));
    expect(columns.map((each) => each.depth)).toEqual([0, 1, 2]);
    expect(x[0]).toBe(x[3]);
    expect(x[0]!).toBeLessThan(x[1]!);
    expect(x[1]!).toBeLessThan(x[2]!);
  });

  it("marks what goes back in a circle, and a node that leads to itself", () => {
    const { back, x } = layOutGraph(input(4, [[0, 1], [1, 2], [2, 1], [3, 3]]));
    expect([...back]).toEqual([0, 0, 1, 1]);
    expect(x[1]!).toBeLessThan(x[2]!);
  });

  it("is the same every time, and no two nodes share a place, at 2,000 nodes and 8,000 edges", () => {
    const arcs: [number, number][] = Array.from({ length: 8000 }, (_, n) => {
      const cause = (n * 7919) % 1900;
      return [cause, cause + 1 + ((n * 104_729) % 99)];
    });
    const first = layOutGraph(input(2000, arcs));
    const second = layOutGraph(input(2000, arcs));
    expect(first).toEqual(second);
    expect(new Set(Array.from(first.x, (x, n) => `${x}/${first.y[n]}`)).size).toBe(2000);
    expect(first.merged).toBe(true);
    expect(first.columns.length).toBeLessThanOrEqual(16);
  });

  it("bears a circle without a beginning, a long chain, and nothing at all", () => {
    expect([...layOutGraph(input(3, [[0, 1], [1, 2], [2, 0]])).back]).toEqual([0, 0, 1]);
    const chain = Array.from({ length: 4999 }, (_, n): [number, number] => [n, n + 1]);
    expect(layOutGraph(input(5000, chain)).columns.length).toBe(16);
    expect(layOutGraph(input(0, [])).columns).toEqual([]);
  });
});
