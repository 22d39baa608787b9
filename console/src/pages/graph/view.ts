// The window onto the graph. Cytoscape has the nodes as places that can be pointed at, and moves the window by mouse,
// wheel and touch; what is seen is painted by us, because it would paint every arc again for every event of the slider.

import cytoscape from "cytoscape";
import type { CausalGraph } from "../../model/graph";
import type { Layout } from "../../model/layout";
import { Painter, type Scene, type Viewport } from "./painter";

const REST_MS = 160;
const PADDING = 26;
const HEADING = 22;
const STYLE_MARKER = "__________cytoscape_stylesheet";

/** Cytoscape adds a sheet of one rule unless there is one. Ours has the rule, and the page's policy allows no other. */
function claimStyleSheet(): void {
  if (document.getElementById(STYLE_MARKER)) return;
  const marker = document.createElement("template");
  marker.id = STYLE_MARKER;
  document.head.append(marker);
}

export class GraphView {
  private readonly painter: Painter;
  private readonly cy: cytoscape.Core;
  private readonly arcs: HTMLCanvasElement;
  private readonly nodes: HTMLCanvasElement;
  private readonly sizes: ResizeObserver;
  private readonly themes: MutationObserver;
  private readonly scheme = matchMedia("(prefers-color-scheme: light)");
  private scene: Scene | null = null;
  private frame = 0;
  private rest = 0;
  private painted: Viewport = { zoom: 1, x: 0, y: 0 };
  /** What the canvas of nodes shows; null where it was wiped. */
  private marked: { scene: Scene; view: Viewport } | null = null;
  /** Of the container, read when it changes: to ask for it in every frame would lay the page out once more. */
  private width = 1;
  private height = 1;

  constructor(private readonly container: HTMLElement, graph: CausalGraph, private readonly layout: Layout, choose: (node: number | null) => void) {
    claimStyleSheet();
    this.painter = new Painter(graph, layout);
    const places = document.createElement("div");
    places.className = "places";
    this.arcs = document.createElement("canvas");
    this.nodes = document.createElement("canvas");
    container.append(this.arcs, this.nodes, places);
    this.cy = cytoscape({
      container: places,
      elements: graph.nodes.map((_, n) => ({ data: { id: String(n), width: this.painter.widths[n]! + 26 }, position: { x: layout.x[n]! + this.painter.widths[n]! / 2 + 5, y: layout.y[n]! } })),
      layout: { name: "preset", fit: false },
      style: [{ selector: "node", style: { shape: "rectangle", width: "data(width)", height: 22, "background-opacity": 0, "border-width": 0, "overlay-opacity": 0 } }],
      autoungrabify: true,
      autounselectify: true,
      boxSelectionEnabled: false,
      minZoom: 0.04,
      maxZoom: 3,
      pixelRatio: 1,
    });
    this.cy.on("tap", (event: cytoscape.EventObject) => {
      const target = event.target as cytoscape.Core | cytoscape.NodeSingular;
      const node = target === this.cy ? null : Number((target as cytoscape.NodeSingular).id());
      choose(node !== null && this.scene && this.painter.isHidden(this.scene, node) ? null : node);
    });
    this.cy.on("mouseover", "node", () => (container.style.cursor = "pointer"));
    this.cy.on("mouseout", "node", () => (container.style.cursor = ""));
    this.cy.on("viewport", () => this.moveWindow());
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(container);
    this.themes = new MutationObserver(this.recolour);
    this.themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.scheme.addEventListener("change", this.recolour);
    this.resize();
    this.open();
  }

  destroy(): void {
    this.sizes.disconnect();
    this.themes.disconnect();
    this.scheme.removeEventListener("change", this.recolour);
    cancelAnimationFrame(this.frame);
    clearTimeout(this.rest);
    this.cy.destroy();
    this.container.replaceChildren();
  }

  /** Show another moment or selection. Nodes are painted in the next frame; many arcs once nothing moves any more. */
  show(scene: Scene): void {
    const before = this.scene;
    this.scene = scene;
    const slides = before !== null && before.at !== scene.at;
    if (this.painter.isLarge && slides) this.paintLater(() => this.paintChanged());
    else this.paintLater(() => this.paintAll());
    if (this.painter.isLarge && slides) this.restSoon();
  }

  /** How the page begins: all of it, or on a narrow screen as much as can be read, from the causes on. */
  private open(): void {
    this.fit();
    const readable = Math.min(0.75, (this.container.clientHeight - HEADING - PADDING) / this.layout.height);
    if (this.cy.zoom() >= 0.45 || this.painter.isLarge || readable <= this.cy.zoom()) return;
    this.cy.viewport({ zoom: readable, pan: { x: PADDING, y: HEADING + (this.container.clientHeight - HEADING - this.layout.height * readable) / 2 } });
  }

  fit(): void {
    const width = Math.max(1, this.container.clientWidth);
    const height = Math.max(1, this.container.clientHeight);
    const zoom = Math.min(1.25, (width - 2 * PADDING) / this.layout.width, (height - 2 * PADDING - HEADING) / this.layout.height);
    const pan = { x: (width - this.layout.width * zoom) / 2 + 8, y: HEADING + (height - HEADING - this.layout.height * zoom) / 2 };
    this.cy.viewport({ zoom: Math.max(0.04, zoom), pan });
  }

  zoomBy(factor: number): void {
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: { x: this.container.clientWidth / 2, y: this.container.clientHeight / 2 } });
  }

  /** Bring a node into the middle, large enough to be read. */
  centre(node: number): void {
    const zoom = Math.max(0.9, this.cy.zoom());
    const pan = { x: this.container.clientWidth / 2 - this.layout.x[node]! * zoom, y: this.container.clientHeight / 2 - this.layout.y[node]! * zoom };
    this.cy.viewport({ zoom, pan });
  }

  private get viewport(): Viewport {
    const { x, y } = this.cy.pan();
    return { zoom: this.cy.zoom(), x, y };
  }

  private recolour = (): void => {
    this.painter.refreshColours();
    this.paintLater(() => this.paintAll());
  };

  private resize(): void {
    const ratio = devicePixelRatio || 1;
    this.width = this.container.clientWidth;
    this.height = this.container.clientHeight;
    for (const canvas of [this.arcs, this.nodes]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
    }
    this.marked = null;
    this.cy.resize();
    this.paintLater(() => this.paintAll());
  }

  private moveWindow(): void {
    if (!this.painter.isLarge) {
      this.paintLater(() => this.paintAll());
      return;
    }
    // What was painted moves along until the window rests.
    const { zoom, x, y } = this.viewport;
    const scale = zoom / this.painted.zoom;
    this.arcs.style.transform = `translate(${x - this.painted.x * scale}px, ${y - this.painted.y * scale}px) scale(${scale})`;
    this.paintLater(() => this.paintNodes());
    this.restSoon();
  }

  private restSoon(): void {
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.paintLater(() => this.paintAll()), REST_MS) as unknown as number;
  }

  private paintLater(paint: () => void): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(paint);
  }

  private paintAll(): void {
    clearTimeout(this.rest);
    if (!this.scene) return;
    this.painted = this.viewport;
    this.arcs.style.transform = "";
    this.painter.paintArcs(this.wipe(this.arcs), this.scene, this.painted);
    this.paintNodes();
  }

  private paintNodes(): void {
    if (!this.scene) return;
    this.marked = { scene: this.scene, view: this.viewport };
    this.painter.paintNodes(this.wipe(this.nodes), this.scene, this.viewport, this.width, this.height);
  }

  /** The nodes that the slider changed, where the window did not move. */
  private paintChanged(): void {
    const { marked, scene, viewport } = this;
    if (!scene) return;
    const isSameView = marked !== null && marked.view.zoom === viewport.zoom && marked.view.x === viewport.x && marked.view.y === viewport.y;
    if (isSameView && this.painter.repaintMarks(this.contextOf(this.nodes), marked.scene, scene, viewport)) this.marked = { scene, view: viewport };
    else this.paintNodes();
  }

  private contextOf(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
    const context = canvas.getContext("2d")!;
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
  }

  private wipe(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
    const context = this.contextOf(canvas);
    context.clearRect(0, 0, this.width, this.height);
    return context;
  }
}
