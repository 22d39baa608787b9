// Where the nodes of a causal graph stand: columns by depth, from causes at the left to what shows at the right.
// The places follow from nodes and arcs alone. What is ruled out is no input, so that no elimination can move a node.

export interface LayoutInput {
  /** The length of each node's label, in characters; as many as there are nodes. */
  labels: ArrayLike<number>;
  causes: ArrayLike<number>;
  effects: ArrayLike<number>;
}

export interface Layout {
  x: Float32Array;
  y: Float32Array;
  /** How far a label may go from its node before the next column begins. */
  room: Float32Array;
  /** 1 for arcs that go back in a circle. */
  back: Uint8Array;
  columns: { x: number; depth: number }[];
  /** Whether several depths share a column. */
  merged: boolean;
  width: number;
  height: number;
  /** Of the column with the most nodes. */
  rowHeight: number;
}

/** More columns are merged: a chain of a thousand links would be as wide as a street. */
const MAX_COLUMNS = 16;
const SWEEPS = 6;
const LEAST_ROW = 26;
const WIDEST_ROW = 46;
/** Height over width that rows are spread to, where there are few. */
const FLATNESS = 0.62;
const LEAST_COLUMN = 150;
const WIDEST_LABEL = 34;
const CHARACTER = 7.4;
const GAP = 80;

interface Links {
  causes: number[][];
  effects: number[][];
}

export function layOutGraph(input: LayoutInput): Layout {
  const size = input.labels.length;
  const back = findBackArcs(size, input.causes, input.effects);
  const links = listLinks(size, input.causes, input.effects, back);
  const depth = findDepths(size, links);
  const columns = orderColumns(groupByDepth(mergeDepths(depth)), links, size);
  return place(columns, input.labels, back, depth.some((each) => each >= MAX_COLUMNS));
}

/** Arcs that lead back to where a walk came from. The walk begins at what nothing causes, and is in order of number. */
function findBackArcs(size: number, causes: ArrayLike<number>, effects: ArrayLike<number>): Uint8Array {
  const outgoing: number[][] = Array.from({ length: size }, () => []);
  const incoming = new Int32Array(size);
  for (let arc = 0; arc < causes.length; arc++) {
    outgoing[causes[arc]!]!.push(arc);
    if (causes[arc] !== effects[arc]) incoming[effects[arc]!]! += 1;
  }
  const back = new Uint8Array(causes.length);
  // 0 not seen, 1 on the way here, 2 done.
  const seen = new Uint8Array(size);
  const next = new Int32Array(size);
  const starts = Array.from({ length: size }, (_, node) => node).sort((a, b) => Number(incoming[a]! > 0) - Number(incoming[b]! > 0) || a - b);
  for (const start of starts) {
    if (seen[start] !== 0) continue;
    const stack = [start];
    seen[start] = 1;
    while (stack.length > 0) {
      const node = stack[stack.length - 1]!;
      const arc = outgoing[node]![next[node]!++];
      if (arc === undefined) {
        seen[node] = 2;
        stack.pop();
        continue;
      }
      const effect = effects[arc]!;
      if (seen[effect] === 1) back[arc] = 1;
      else if (seen[effect] === 0) {
        seen[effect] = 1;
        stack.push(effect);
      }
    }
  }
  return back;
}

function listLinks(size: number, causes: ArrayLike<number>, effects: ArrayLike<number>, back: Uint8Array): Links {
  const links: Links = { causes: Array.from({ length: size }, () => []), effects: Array.from({ length: size }, () => []) };
  for (let arc = 0; arc < causes.length; arc++) {
    if (back[arc]) continue;
    links.effects[causes[arc]!]!.push(effects[arc]!);
    links.causes[effects[arc]!]!.push(causes[arc]!);
  }
  return links;
}

/** The longest way to each node from what nothing causes, without the arcs that go back. */
function findDepths(size: number, links: Links): Int32Array {
  const depth = new Int32Array(size);
  const waiting = Int32Array.from(links.causes, (each) => each.length);
  const ready: number[] = [];
  for (let node = 0; node < size; node++) if (waiting[node] === 0) ready.push(node);
  for (let at = 0; at < ready.length; at++) {
    const node = ready[at]!;
    for (const effect of links.effects[node]!) {
      depth[effect] = Math.max(depth[effect]!, depth[node]! + 1);
      if (--waiting[effect]! === 0) ready.push(effect);
    }
  }
  return depth;
}

function mergeDepths(depth: Int32Array): Int32Array {
  const deepest = depth.reduce((most, each) => Math.max(most, each), 0) + 1;
  return deepest <= MAX_COLUMNS ? depth : depth.map((each) => Math.floor((each * MAX_COLUMNS) / deepest));
}

function groupByDepth(depth: Int32Array): number[][] {
  const columns: number[][] = [];
  depth.forEach((column, node) => (columns[column] ??= []).push(node));
  return columns.filter((column) => column !== undefined);
}

/** Each node near the middle of its neighbours, going there and back over the columns. */
function orderColumns(columns: number[][], links: Links, size: number): number[][] {
  const rank = new Float64Array(size);
  const number = (column: number[]): void => column.forEach((node, row) => (rank[node] = (row + 0.5) / column.length));
  columns.forEach(number);
  const wanted = new Float64Array(size);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forward = sweep % 2 === 0;
    const near = forward ? links.causes : links.effects;
    for (const column of forward ? columns : [...columns].reverse()) {
      for (const node of column) {
        const around = near[node]!;
        wanted[node] = around.length === 0 ? rank[node]! : around.reduce((sum, each) => sum + rank[each]!, 0) / around.length;
      }
      column.sort((a, b) => wanted[a]! - wanted[b]! || rank[a]! - rank[b]! || a - b);
      number(column);
    }
  }
  return columns;
}

function place(columns: number[][], labels: ArrayLike<number>, back: Uint8Array, merged: boolean): Layout {
  const size = labels.length;
  const layout: Layout = { x: new Float32Array(size), y: new Float32Array(size), room: new Float32Array(size), back, columns: [], merged, width: 0, height: 0, rowHeight: 0 };
  // A column that is much longer than the graph is wide goes on beside itself.
  const rows = Math.max(30, Math.ceil(Math.sqrt(size) * 1.3));
  const parts: number[][] = [];
  columns.forEach((column, depth) => {
    layout.columns.push({ x: layout.width, depth });
    for (let first = 0; first < column.length; first += rows) {
      const part = column.slice(first, first + rows);
      const longest = part.reduce((most, node) => Math.max(most, labels[node]!), 0);
      const wide = Math.max(LEAST_COLUMN, Math.min(longest, WIDEST_LABEL) * CHARACTER + GAP);
      for (const node of part) {
        layout.x[node] = layout.width;
        layout.room[node] = wide - GAP / 2 - 4;
      }
      layout.width += wide;
      parts.push(part);
    }
  });
  // Beside the last column there is no other.
  for (const node of parts.at(-1) ?? []) layout.room[node]! += GAP / 2;
  const tallest = Math.max(1, ...parts.map((part) => part.length));
  layout.rowHeight = Math.max(LEAST_ROW, Math.min(WIDEST_ROW, (layout.width * FLATNESS) / tallest));
  layout.height = tallest * layout.rowHeight;
  for (const part of parts) {
    const step = Math.min(1.6 * WIDEST_ROW, layout.height / part.length);
    const top = (layout.height - step * part.length) / 2;
    part.forEach((node, row) => (layout.y[node] = top + step * (row + 0.5)));
  }
  return layout;
}
