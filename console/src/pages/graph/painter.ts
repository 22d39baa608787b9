// The graph on two canvases: arcs, which are many and change seldom, and nodes, which are painted again for every event.

import type { CausalGraph } from "../../model/graph";
import type { Layout } from "../../model/layout";

export type GoneMode = "struck" | "faint" | "hidden";

/** What is to be seen of a graph at a moment. */
export interface Scene {
  at: number;
  deaths: Int32Array;
  arcDeaths: Int32Array;
  gone: GoneMode;
  hiddenTypes: ReadonlySet<string>;
  matches: ReadonlySet<number> | null;
  selected: number | null;
  symptoms: ReadonlySet<number>;
  pathArcs: ReadonlySet<number>;
}

export interface Viewport {
  zoom: number;
  x: number;
  y: number;
}

export interface Colours {
  holds: string;
  holdsGround: string;
  gone: string;
  line: string;
  fg: string;
  fg2: string;
  fg3: string;
  surface: string;
  owed: string;
  sans: string;
}

/** So many arcs are drawn as curves with heads; more of them as plain lines, and not while something moves. */
export const MANY_ARCS = 2000;
const MANY_NODES = 300;
/** So few survivors have their names in every zoom. */
const FEW = 12;
/** The size that labels are measured in. */
const FONT = 12;
const LEAST_FONT = 9;
const MOST_FONT = 15;
const BELL = new Path2D("M8 2a4 4 0 0 0-4 4v3.5L2.8 11.5h10.4L12 9.5V6a4 4 0 0 0-4-4zM6.8 13.3a1.3 1.3 0 0 0 2.4 0z");

export function readColours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(name).trim();
  return {
    holds: of("--holds"), holdsGround: of("--holds-bg"), gone: of("--gone"), line: of("--ghost"), fg: of("--fg"), fg2: of("--fg-2"), fg3: of("--fg-3"),
    surface: of("--surface"), owed: of("--owed"), sans: of("--sans"),
  };
}

type Shape = (to: Path2D | CanvasRenderingContext2D, x: number, y: number, r: number) => void;

const circle: Shape = (to, x, y, r) => {
  to.moveTo(x + r, y);
  to.arc(x, y, r, 0, 2 * Math.PI);
};

function polygon(...corners: [number, number][]): Shape {
  return (to, x, y, r) => {
    corners.forEach(([u, v], n) => (n === 0 ? to.moveTo(x + u * r, y + v * r) : to.lineTo(x + u * r, y + v * r)));
    to.closePath();
  };
}

/** The type of a node is its shape; its state is how the shape is filled. */
export const SHAPES: Record<string, Shape> = {
  SERVICE: circle,
  DEPENDENCY: polygon([0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]),
  INFRASTRUCTURE: polygon([-0.95, -0.95], [0.95, -0.95], [0.95, 0.95], [-0.95, 0.95]),
  MECHANISM: polygon([0, -1.2], [1.15, 0.9], [-1.15, 0.9]),
};
const OTHER_TYPE: Shape = polygon([-0.6, -1], [0.6, -1], [1.15, 0], [0.6, 1], [-0.6, 1], [-1.15, 0]);

export function shapeOf(type: string): Shape {
  return SHAPES[type] ?? OTHER_TYPE;
}

type MarkPainter = (context: OffscreenCanvasRenderingContext2D, type: string, state: number, x: number, y: number) => void;

/** The marks of each type in each state, side by side. */
class Sprites {
  /** Not a canvas: of a canvas the browser takes a snapshot for every copy. */
  private readonly marks: ImageBitmap;
  private readonly cell: number;

  constructor(readonly key: string, r: number, private readonly ratio: number, types: string[], paint: MarkPainter) {
    this.cell = Math.ceil((2 * r * 1.3 + 4) * ratio);
    const canvas = new OffscreenCanvas(this.cell * types.length, this.cell * 3);
    const context = canvas.getContext("2d")!;
    context.scale(ratio, ratio);
    const side = this.cell / ratio;
    types.forEach((type, column) => {
      for (let state = 0; state < 3; state++) paint(context, type, state, side * (column + 0.5), side * (state + 0.5));
    });
    this.marks = canvas.transferToImageBitmap();
  }

  draw(context: CanvasRenderingContext2D, kind: number, state: number, x: number, y: number): void {
    const { cell } = this;
    const side = cell / this.ratio;
    context.drawImage(this.marks, kind * cell, state * cell, cell, cell, this.snap(x), this.snap(y), side, side);
  }

  erase(context: CanvasRenderingContext2D, x: number, y: number): void {
    const side = this.cell / this.ratio;
    context.clearRect(this.snap(x), this.snap(y), side, side);
  }

  /** Where a mark begins: on whole pixels of the screen, or every copy would be blurred. */
  private snap(middle: number): number {
    return Math.round((middle - this.cell / this.ratio / 2) * this.ratio) / this.ratio;
  }
}

export class Painter {
  private colours = readColours();
  /** Of each label, at the size of the model. */
  readonly widths: Float32Array;
  private readonly rowHeight: number;
  private readonly types: string[];
  /** The number of each node's type. */
  private readonly kinds: Uint8Array;
  private sprites: Sprites | null = null;

  constructor(private readonly graph: CausalGraph, private readonly layout: Layout) {
    const context = document.createElement("canvas").getContext("2d")!;
    context.font = `${FONT}px ${this.colours.sans}`;
    this.widths = Float32Array.from(graph.nodes, (node, n) => Math.min(layout.room[n]! - 14, context.measureText(node.label).width));
    this.rowHeight = layout.rowHeight;
    this.types = [...new Set(graph.nodes.map((node) => node.type))];
    this.kinds = Uint8Array.from(graph.nodes, (node) => this.types.indexOf(node.type));
  }

  get isLarge(): boolean {
    return this.graph.arcs.length > MANY_ARCS;
  }

  refreshColours(): void {
    this.colours = readColours();
  }

  isGone(scene: Scene, node: number): boolean {
    const death = scene.deaths[node]!;
    return death >= 0 && death <= scene.at;
  }

  isHidden(scene: Scene, node: number): boolean {
    return scene.hiddenTypes.has(this.graph.nodes[node]!.type) || (scene.gone === "hidden" && this.isGone(scene, node) && node !== scene.selected);
  }

  /** The size of ordinary labels in a view; 0 where there is no room for any. */
  private fontOf(view: Viewport): number {
    const size = FONT * view.zoom;
    if (size >= LEAST_FONT) return Math.min(MOST_FONT, size);
    // Fewer letters that can be read are better than all of them.
    return this.graph.nodes.length <= MANY_NODES && this.rowHeight * view.zoom >= 12 ? LEAST_FONT + 0.5 : 0;
  }

  private widthOf(node: number, font: number, view: Viewport): number {
    return Math.min((this.widths[node]! * font) / FONT, (this.layout.room[node]! - 14) * view.zoom);
  }

  paintArcs(context: CanvasRenderingContext2D, scene: Scene, view: Viewport): void {
    const groups = { live: new Path2D(), dead: new Path2D(), back: new Path2D() };
    const heads = new Path2D();
    this.graph.arcs.forEach((arc, n) => {
      if (scene.pathArcs.has(n) || this.isHidden(scene, arc.cause) || this.isHidden(scene, arc.effect)) return;
      const death = scene.arcDeaths[n]!;
      const dead = this.isGone(scene, arc.cause) || this.isGone(scene, arc.effect) || (death >= 0 && death <= scene.at);
      const isBack = this.layout.back[n] === 1;
      this.traceArc(dead ? groups.dead : isBack ? groups.back : groups.live, dead || this.isLarge ? null : heads, n, view);
    });
    const { line } = this.colours;
    context.lineWidth = this.isLarge ? 0.6 : 1;
    context.strokeStyle = line;
    // The more there are, the paler each: nodes must stay visible over them.
    const strength = this.isLarge ? Math.max(0.08, Math.min(0.5, 1000 / this.graph.arcs.length)) : 0.9;
    this.stroke(context, groups.dead, this.isLarge ? [] : [2, 3], strength * (scene.gone === "faint" ? 0.1 : 0.32));
    this.stroke(context, groups.back, [1, 4], strength * 0.85);
    this.stroke(context, groups.live, [], strength);
    context.globalAlpha = 0.9;
    context.fillStyle = line;
    context.fill(heads);
    context.globalAlpha = 1;
  }

  private stroke(context: CanvasRenderingContext2D, path: Path2D, dash: number[], alpha: number): void {
    context.setLineDash(dash);
    context.globalAlpha = alpha;
    context.stroke(path);
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  private traceArc(to: Path2D, heads: Path2D | null, n: number, view: Viewport): void {
    const { cause, effect } = this.graph.arcs[n]!;
    const { x, y } = this.layout;
    const [x0, y0] = [x[cause]! * view.zoom + view.x, y[cause]! * view.zoom + view.y];
    const [x1, y1] = [x[effect]! * view.zoom + view.x, y[effect]! * view.zoom + view.y];
    if (this.isLarge) {
      to.moveTo(x0, y0);
      to.lineTo(x1, y1);
      return;
    }
    const side = 9 * view.zoom;
    const font = this.fontOf(view);
    const after = (node: number, from: number): number => from + side + (font > 0 ? this.widthOf(node, font, view) + 8 : 0);
    if (x1 <= x0 && this.layout.back[n] === 1 && x1 < x0) {
      const [from, end] = [x0 - side, after(effect, x1)];
      to.moveTo(from, y0);
      to.bezierCurveTo(from - 30 * view.zoom, y0, end + 30 * view.zoom, y1, end, y1);
      heads?.addPath(head(end, y1, -1, view.zoom));
    } else if (x1 <= x0) {
      const bulge = Math.min(x0, x1) - side - 26 * view.zoom;
      to.moveTo(x0 - side, y0);
      to.bezierCurveTo(bulge, y0, bulge, y1, x1 - side, y1);
      heads?.addPath(head(x1 - side, y1, 1, view.zoom));
    } else {
      const [from, end] = [Math.min(after(cause, x0), x1 - side - 12 * view.zoom), x1 - side];
      const middle = (from + end) / 2;
      to.moveTo(from, y0);
      to.bezierCurveTo(middle, y0, middle, y1, end, y1);
      heads?.addPath(head(end, y1, 1, view.zoom));
    }
  }

  paintNodes(context: CanvasRenderingContext2D, scene: Scene, view: Viewport, width: number, height: number): void {
    this.paintHeadings(context, view, width);
    this.paintPaths(context, scene, view);
    const r = this.radiusOf(view);
    const sprites = this.drawSprites(r);
    const shown: number[] = [];
    this.graph.nodes.forEach((node, n) => {
      const gone = this.isGone(scene, n);
      if (this.isHidden(scene, n)) return;
      const x = this.layout.x[n]! * view.zoom + view.x;
      const y = this.layout.y[n]! * view.zoom + view.y;
      if (x < -260 * view.zoom - 20 || x > width + 10 || y < -20 || y > height + 20) return;
      shown.push(n);
      context.globalAlpha = this.strengthOf(scene, n);
      sprites.draw(context, this.kinds[n]!, gone ? 1 : node.outside ? 2 : 0, x, y);
    });
    context.globalAlpha = 1;
    this.paintLabels(context, scene, view, shown, r, this.countAlive(scene) <= FEW);
  }

  /**
   * Paint the marks again that are another than before, over what is painted; false where all has to be painted.
   *
   * While a slider moves, these are a fraction of all nodes. A mark that touches another can lose its edge to it, until
   * all is painted again when the slider rests.
   */
  repaintMarks(context: CanvasRenderingContext2D, before: Scene, scene: Scene, view: Viewport): boolean {
    const isOnlyMoved = (Object.keys(scene) as (keyof Scene)[]).every((name) => name === "at" || scene[name] === before[name]);
    // Where labels follow the state of nodes, they change along with the marks.
    if (!isOnlyMoved || scene.gone === "hidden" || this.fontOf(view) > 0 || this.countAlive(before) <= FEW || this.countAlive(scene) <= FEW) return false;
    const r = this.radiusOf(view);
    const sprites = this.drawSprites(r);
    const place = (n: number): [number, number] => [this.layout.x[n]! * view.zoom + view.x, this.layout.y[n]! * view.zoom + view.y];
    const changed: number[] = [];
    this.graph.nodes.forEach((node, n) => {
      if (this.isGone(before, n) !== this.isGone(scene, n) && !scene.hiddenTypes.has(node.type)) changed.push(n);
    });
    for (const n of changed) sprites.erase(context, ...place(n));
    for (const n of changed) {
      context.globalAlpha = this.strengthOf(scene, n);
      sprites.draw(context, this.kinds[n]!, this.isGone(scene, n) ? 1 : this.graph.nodes[n]!.outside ? 2 : 0, ...place(n));
    }
    context.globalAlpha = 1;
    const marked = [...scene.symptoms, ...(scene.selected === null ? [] : [scene.selected])];
    this.paintLabels(context, scene, view, marked.filter((n) => !this.isHidden(scene, n)), r, false);
    return true;
  }

  private countAlive(scene: Scene): number {
    return this.graph.nodes.reduce((sum, node, n) => sum + (node.outside || this.isGone(scene, n) ? 0 : 1), 0);
  }

  private strengthOf(scene: Scene, node: number): number {
    if (scene.matches !== null && !scene.matches.has(node)) return 0.25;
    return scene.gone === "faint" && this.isGone(scene, node) ? 0.3 : 1;
  }

  private radiusOf(view: Viewport): number {
    return Math.max(2, Math.min(7, 5 * view.zoom));
  }

  /** Every mark once: to copy two thousand of them is quicker than to draw a path with as many shapes. */
  private drawSprites(r: number): Sprites {
    const ratio = devicePixelRatio || 1;
    const key = [r.toFixed(2), ratio, this.colours.holds, this.colours.surface].join();
    if (this.sprites?.key !== key) this.sprites = new Sprites(key, r, ratio, this.types, (context, type, state, x, y) => this.paintMark(context, type, state, x, y, r));
    return this.sprites;
  }

  private paintMark(context: CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D, type: string, state: number, x: number, y: number, r: number): void {
    const path = new Path2D();
    shapeOf(type)(path, x, y, r);
    if (state === 1) {
      path.moveTo(x - r * 1.15, y + r * 1.15);
      path.lineTo(x + r * 1.15, y - r * 1.15);
    }
    context.lineWidth = Math.max(0.8, Math.min(1.4, r / 3.5));
    this.fillNodes(context, path, [this.colours.holds, this.colours.gone, this.colours.fg2][state]!, 1, state === 0);
  }

  private fillNodes(context: CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D, path: Path2D, colour: string, alpha: number, full: boolean): void {
    context.globalAlpha = alpha;
    context.fillStyle = full ? colour : this.colours.surface;
    context.strokeStyle = colour;
    context.fill(path);
    if (!full) context.stroke(path);
    context.globalAlpha = 1;
  }

  private paintLabels(context: CanvasRenderingContext2D, scene: Scene, view: Viewport, shown: number[], r: number, few: boolean): void {
    const font = this.fontOf(view);
    const taken: [number, number, number, number][] = [];
    context.textBaseline = "middle";
    const later: number[] = [];
    for (const n of shown) {
      const gone = this.isGone(scene, n);
      const isCandidate = few && !gone && !this.graph.nodes[n]!.outside;
      if (n === scene.selected || isCandidate || scene.symptoms.has(n) || (scene.matches?.has(n) === true && scene.matches.size <= FEW)) later.push(n);
      else if (font > 0 && !(gone && scene.gone === "faint")) this.paintLabel(context, scene, view, n, font, r, null);
    }
    // What is marked has its name in every zoom, the chosen one first; of two that would touch, the first.
    later.sort((a, b) => Number(b === scene.selected) - Number(a === scene.selected) || a - b);
    for (const n of later) this.paintLabel(context, scene, view, n, Math.max(11, font), r, taken, few);
  }

  private paintLabel(context: CanvasRenderingContext2D, scene: Scene, view: Viewport, n: number, font: number, r: number, taken: [number, number, number, number][] | null, few = false): void {
    const { colours } = this;
    const node = this.graph.nodes[n]!;
    const gone = this.isGone(scene, n);
    const chosen = n === scene.selected;
    const candidate = few && !gone && !node.outside;
    const x = this.layout.x[n]! * view.zoom + view.x;
    const y = this.layout.y[n]! * view.zoom + view.y;
    const from = x + r + 4;
    context.font = `${chosen || candidate ? "600 " : ""}${font}px ${colours.sans}`;
    const room = Math.max(taken ? 96 : 0, (this.layout.room[n]! - 14) * view.zoom);
    const [text, width] = fitText(context, node.label, room);
    if (taken) {
      const box: [number, number, number, number] = [x - r - 6, y - font * 0.8, from + width + 10, y + font * 0.8];
      if (taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] + 3 < other[3] && other[1] + 3 < box[3])) return;
      taken.push(box);
      if (chosen || candidate) this.paintPill(context, box, gone, chosen, candidate);
      this.paintMark(context, node.type, gone ? 1 : node.outside ? 2 : 0, x, y, r);
    }
    context.globalAlpha = scene.matches !== null && !scene.matches.has(n) && !chosen ? 0.3 : 1;
    context.fillStyle = gone ? colours.gone : node.outside && !chosen ? colours.fg2 : colours.fg;
    context.fillText(text, from, y + 0.5);
    if (gone) context.fillRect(from - 1, y + 0.5, width + 2, 1);
    context.globalAlpha = 1;
    if (scene.symptoms.has(n)) {
      context.save();
      context.translate(from + width + (chosen || candidate ? 14 : 6), y - font * 0.62);
      context.scale(font / 13, font / 13);
      context.fillStyle = colours.owed;
      context.fill(BELL);
      context.restore();
    }
  }

  private paintPill(context: CanvasRenderingContext2D, [left, top, right, bottom]: [number, number, number, number], gone: boolean, chosen: boolean, candidate: boolean): void {
    const { colours } = this;
    const outline = (beyond: number): void => {
      context.beginPath();
      context.roundRect(left - beyond, top - beyond, right - left + 2 * beyond, bottom - top + 2 * beyond, (bottom - top) / 2 + beyond);
    };
    outline(0);
    context.fillStyle = colours.surface;
    context.fill();
    context.fillStyle = candidate ? colours.holdsGround : colours.surface;
    context.fill();
    context.lineWidth = 1.4;
    context.strokeStyle = gone ? colours.gone : candidate ? colours.holds : colours.fg2;
    context.stroke();
    if (!chosen) return;
    outline(3);
    context.lineWidth = 2;
    context.strokeStyle = colours.fg;
    context.stroke();
  }

  private paintPaths(context: CanvasRenderingContext2D, scene: Scene, view: Viewport): void {
    const lines = new Path2D();
    const heads = new Path2D();
    for (const n of scene.pathArcs) this.traceArc(lines, this.isLarge ? null : heads, n, view);
    context.lineWidth = this.isLarge ? 1.3 : 1.8;
    context.strokeStyle = context.fillStyle = this.colours.holds;
    context.stroke(lines);
    context.fill(heads);
  }

  private paintHeadings(context: CanvasRenderingContext2D, view: Viewport, width: number): void {
    const { columns, merged } = this.layout;
    context.font = `11px ${this.colours.sans}`;
    context.textBaseline = "alphabetic";
    context.fillStyle = this.colours.fg3;
    let free = -Infinity;
    columns.forEach(({ x, depth }, n) => {
      const title = columns.length === 1 ? "" : n === 0 ? "where it can begin" : n === columns.length - 1 ? "where it shows" : merged ? "" : depth === 1 ? "after 1 step" : `after ${depth} steps`;
      const start = x * view.zoom + view.x - 6;
      const place = start < width ? Math.min(start, width - 8 - context.measureText(title).width) : start;
      if (place < free || place > width) return;
      context.fillText(title, place, 16);
      free = place + context.measureText(title).width + 12;
    });
  }
}

function head(x: number, y: number, direction: 1 | -1, zoom: number): Path2D {
  const size = Math.max(2.5, 4.5 * Math.min(1.2, zoom));
  const path = new Path2D();
  path.moveTo(x, y);
  path.lineTo(x - direction * size * 1.4, y - size * 0.7);
  path.lineTo(x - direction * size * 1.4, y + size * 0.7);
  path.closePath();
  return path;
}

/** A text cut to a width, and the width that it has then. */
function fitText(context: CanvasRenderingContext2D, text: string, room: number): [string, number] {
  const whole = context.measureText(text).width;
  if (whole <= room) return [text, whole];
  const kept = `${text.slice(0, Math.max(1, Math.floor((text.length * room) / whole) - 1)).trimEnd()}…`;
  return [kept, context.measureText(kept).width];
}
