// Layouts by anchor: computed once, in a worker, and kept as long as the page is open.

import type { CausalGraph } from "../../model/graph";
import type { Layout, LayoutInput } from "../../model/layout";

const MAX_KEPT = 8;
const kept = new Map<string, Promise<Layout>>();

/** The layout of a graph; `anchor` names the graph and its version, of which there is one layout for good. */
export function findLayout(anchor: string, graph: CausalGraph): Promise<Layout> {
  const known = kept.get(anchor);
  if (known) return known;
  const layout = compute(graph);
  kept.set(anchor, layout);
  layout.catch(() => kept.delete(anchor));
  if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value!);
  return layout;
}

function compute(graph: CausalGraph): Promise<Layout> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (message: MessageEvent<Layout>) => {
      worker.terminate();
      resolve(message.data);
    };
    worker.onerror = (event) => {
      worker.terminate();
      reject(new Error(event.message || "the layout could not be computed"));
    };
    const input: LayoutInput = {
      labels: Int32Array.from(graph.nodes, (node) => node.label.length),
      causes: Int32Array.from(graph.arcs, (arc) => arc.cause),
      effects: Int32Array.from(graph.arcs, (arc) => arc.effect),
    };
    worker.postMessage(input);
  });
}
