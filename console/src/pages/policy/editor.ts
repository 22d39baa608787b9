// CodeMirror for a policy file. It lives in a shadow root: there it adopts its style sheets, and the page needs none inline.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { Chunk, unifiedMergeView } from "@codemirror/merge";
import { search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, RangeSet, StateEffect, StateField, Text, type Extension, type Range, type Transaction } from "@codemirror/state";
import { Decoration, EditorView, GutterMarker, WidgetType, drawSelection, gutter, highlightActiveLine, keymap, lineNumbers, type Command, type DecorationSet } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Schemas } from "../../api/client";
import { splitCode } from "../../ui/format";

export type Finding = Schemas["PolicyFinding"];

export interface Editor {
  show: (findings: Finding[]) => void;
  goTo: (line: number, column: number) => void;
  replace: (text: string) => void;
  /** Whether lines of the policy in force that are gone or another are shown too. */
  compare: (on: boolean) => void;
  destroy: () => void;
}

const LOOK = EditorView.theme({
  "&": { fontSize: "12px", backgroundColor: "var(--surface)", color: "var(--fg)", maxHeight: "640px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "21px", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--fg-3)", border: "0" },
  ".cm-activeLine": { backgroundColor: "var(--hover)" },
  ".cm-content": { caretColor: "var(--fg)" },
  ".cm-cursor": { borderLeftColor: "var(--fg)" },
  "&.cm-focused": { outline: "2px solid var(--fg)", outlineOffset: "-2px" },
  ".cm-selectionBackground, &.cm-focused .cm-selectionBackground": { backgroundColor: "var(--line-2)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--fg)", border: "1px solid var(--line-2)" },
  // The editor measures what stands between lines, and margins are not part of it.
  // A long message is broken, and does not make the lines wider.
  ".under-line": { padding: "2px 8px 4px 0", contain: "inline-size" },
  ".finding": { padding: "3px 10px", borderLeft: "3px solid", borderRadius: "0 4px 4px 0", font: "12px/18px var(--sans)", whiteSpace: "normal" },
  ".finding.error": { borderColor: "var(--refused)", backgroundColor: "var(--refused-bg)" },
  ".finding.warning": { borderColor: "var(--owed)", backgroundColor: "var(--owed-bg)" },
  ".finding b": { color: "var(--refused)", fontWeight: "600" },
  ".finding.warning b": { color: "var(--owed)" },
  ".finding button": { font: "inherit", color: "var(--fg)", background: "var(--surface)", border: "1px solid var(--line-2)", borderRadius: "4px", padding: "2px 8px", minHeight: "24px", marginLeft: "8px", cursor: "pointer" },
  ".finding button:focus-visible": { outline: "2px solid var(--fg)" },
  ".finding code": { fontFamily: "var(--mono)" },
  ".finding kbd": { font: "11px var(--sans)", color: "var(--fg-2)", border: "1px solid var(--line-2)", borderRadius: "3px", padding: "0 4px", marginLeft: "6px" },
  ".changes": { width: "3px" },
  ".changes .changed": { backgroundColor: "var(--fg-2)", width: "3px" },
  ".cm-changedLine": { backgroundColor: "var(--holds-bg) !important" },
  ".cm-deletedChunk": { backgroundColor: "var(--refused-bg)", paddingLeft: "6px" },
  ".cm-changedText, .cm-deletedText": { background: "none !important", textDecoration: "underline 1px" },
  ".cm-deletedLine, .cm-deletedLine del": { textDecoration: "none" },
  ".cm-collapsedLines": { background: "var(--raised)", color: "var(--fg-2)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--fg)" },
});

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName), tags.keyword], color: "var(--s1)" },
  { tag: [tags.string, tags.content], color: "var(--fg)" },
  { tag: tags.comment, color: "var(--fg-2)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--s2)" },
  { tag: tags.separator, color: "var(--fg-2)" },
]);

function place(state: EditorState, finding: Finding): Diagnostic {
  const line = state.doc.line(Math.min(Math.max(1, finding.line ?? 1), state.doc.lines));
  const from = Math.min(line.from + Math.max(0, (finding.column ?? 1) - 1), line.to);
  return {
    from,
    to: line.to,
    severity: finding.severity === "error" ? "error" : finding.severity === "warning" ? "warning" : "info",
    message: `${finding.line}:${finding.column ?? 1} ${finding.rule}: ${finding.message}`,
  };
}

/** Text of the file, and what to write in its place. */
interface Fix {
  from: number;
  to: number;
  found: string;
  accepted: string;
}

/** Where the fix of a finding belongs; null where it has none, or the text there is another by now. */
function placeFix(doc: Text, { fix }: Finding): Fix | null {
  if (!fix || fix.line > doc.lines) return null;
  const line = doc.line(fix.line);
  const start = line.from + fix.column - 1;
  // A name in quotes stands behind the first of them.
  const from = /["']/.test(doc.sliceString(start, start + 1)) ? start + 1 : start;
  const to = from + fix.found.length;
  return doc.sliceString(from, to) === fix.found ? { from, to, found: fix.found, accepted: fix.accepted } : null;
}

const FIXES = StateField.define<Fix[]>({
  create: () => [],
  update: (fixes, transaction) => {
    const { doc } = transaction.state;
    const found = readFindings(transaction);
    if (found) return found.map((each) => placeFix(doc, each)).filter((each) => each !== null).sort((a, b) => a.from - b.from);
    if (!transaction.docChanged) return fixes;
    return fixes
      .map((each) => ({ ...each, from: transaction.changes.mapPos(each.from, 1), to: transaction.changes.mapPos(each.to, -1) }))
      .filter((each) => doc.sliceString(each.from, each.to) === each.found);
  },
});

function writeFix(view: EditorView, { from, to, found, accepted }: Fix): void {
  view.dispatch({
    changes: { from, to, insert: accepted },
    selection: { anchor: from + accepted.length },
    scrollIntoView: true,
    userEvent: "input.fix",
    effects: EditorView.announce.of(`Line ${view.state.doc.lineAt(from).number}: ${accepted} in place of ${found}`),
  });
  view.focus();
}

/** The next fix from the line of the cursor on, else the first. */
const writeNextFix: Command = (view) => {
  const fixes = view.state.field(FIXES);
  const line = view.state.doc.lineAt(view.state.selection.main.head);
  const fix = fixes.find((each) => each.from >= line.from) ?? fixes[0];
  if (!fix) return false;
  writeFix(view, fix);
  return true;
};

/** The message of a finding, under its line. */
class FindingWidget extends WidgetType {
  /** `offers`: its fix can be written. */
  constructor(private readonly finding: Finding, private readonly offers: boolean) {
    super();
  }

  override eq(other: FindingWidget): boolean {
    return other.finding.message === this.finding.message && other.finding.line === this.finding.line && other.finding.fix?.column === this.finding.fix?.column && other.offers === this.offers;
  }

  toDOM(view: EditorView): HTMLElement {
    const { severity, line, column, rule, message } = this.finding;
    const row = document.createElement("div");
    row.className = "under-line";
    const box = document.createElement("div");
    box.className = `finding ${severity}`;
    const where = document.createElement("b");
    where.textContent = `${line}:${column ?? 1} ${rule} `;
    box.append(where, ...splitCode(message).map((piece, n) => (n % 2 ? writeCode(piece) : piece)));
    if (this.offers) box.append(this.offerFix(view));
    row.append(box);
    return row;
  }

  private offerFix(view: EditorView): HTMLElement {
    const button = document.createElement("button");
    const key = document.createElement("kbd");
    button.type = "button";
    key.textContent = FIX_KEY.replace("-", "+");
    button.append("Write ", writeCode(this.finding.fix!.accepted), key);
    button.addEventListener("click", () => {
      const fix = placeFix(view.state.doc, this.finding);
      if (fix) writeFix(view, fix);
    });
    return button;
  }
}

function writeCode(text: string): HTMLElement {
  const code = document.createElement("code");
  code.textContent = text;
  return code;
}

const FIX_KEY = "Alt-Enter";
const showFindings = StateEffect.define<Finding[]>();

function readFindings(transaction: Transaction): Finding[] | undefined {
  return transaction.effects.filter((each) => each.is(showFindings)).map((each) => each.value as Finding[])[0];
}

const FINDINGS = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (shown, transaction) => {
    const found = readFindings(transaction);
    if (!found) return shown.map(transaction.changes);
    const { doc } = transaction.state;
    const ranges = found
      .filter((each) => each.severity === "error" || each.severity === "warning")
      .map((each): Range<Decoration> => Decoration.widget({ widget: new FindingWidget(each, placeFix(doc, each) !== null), block: true, side: 1 }).range(doc.line(Math.min(Math.max(1, each.line!), doc.lines)).to));
    return Decoration.set(ranges, true);
  },
  provide: (field) => EditorView.decorations.from(field),
});

const CHANGED = new (class extends GutterMarker {
  override elementClass = "changed";
})();

/** A bar beside every line that is not as in `original`. */
function markChanges(original: Text): Extension {
  const markers = StateField.define<RangeSet<GutterMarker>>({
    create: (state) => findChanges(original, state.doc),
    update: (found, transaction) => (transaction.docChanged ? findChanges(original, transaction.state.doc) : found),
  });
  return [markers, gutter({ class: "changes", markers: (view) => view.state.field(markers) })];
}

function findChanges(original: Text, doc: Text): RangeSet<GutterMarker> {
  const lines = new Set<number>();
  for (const chunk of Chunk.build(original, doc, DIFF)) {
    // Where lines were only taken away, the bar stands at the one that follows.
    const last = doc.lineAt(Math.max(chunk.fromB, chunk.endB)).number;
    for (let line = doc.lineAt(Math.min(chunk.fromB, doc.length)).number; line <= last; line++) lines.add(doc.line(line).from);
  }
  return RangeSet.of([...lines].map((from) => CHANGED.range(from)), true);
}

// A file may be megabytes long: an exact comparison of texts that have little in common is given up.
const DIFF = { scanLimit: 500, timeout: 100 };

export function mountEditor(host: HTMLElement, text: string, changed: (text: string) => void, label: string): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  root.replaceChildren();
  const comparison = new Compartment();
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        markChanges(Text.of(text.split("\n"))),
        lineNumbers(),
        history(),
        drawSelection(),
        highlightActiveLine(),
        yaml(),
        lintGutter(),
        FINDINGS,
        FIXES,
        search({ top: true }),
        syntaxHighlighting(COLOURS),
        LOOK,
        comparison.of([]),
        keymap.of([{ key: FIX_KEY, run: writeNextFix }, { key: "Mod-.", run: writeNextFix }, ...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
        EditorView.contentAttributes.of({ "aria-label": label }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) changed(update.state.doc.toString());
        }),
      ],
    }),
  });
  // Reached by keyboard, so that it can be scrolled.
  view.scrollDOM.tabIndex = 0;
  return {
    show: (findings) => {
      const placed = findings.filter((each) => typeof each.line === "number");
      view.dispatch(setDiagnostics(view.state, placed.map((each) => place(view.state, each))), { effects: showFindings.of(placed) });
    },
    goTo: (line, column) => {
      const found = view.state.doc.line(Math.min(line, view.state.doc.lines));
      view.dispatch({ selection: { anchor: Math.min(found.from + column - 1, found.to) }, scrollIntoView: true });
      view.focus();
    },
    replace: (next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    compare: (on) => view.dispatch({
      effects: comparison.reconfigure(on ? unifiedMergeView({ original: text, mergeControls: false, gutter: false, collapseUnchanged: {}, diffConfig: DIFF }) : []),
    }),
    destroy: () => view.destroy(),
  };
}
