// Texts of others as they are: what has no ink, turns a line around or looks like something else is shown by its number.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { compareRows, type ComparedRow, listRows, quoteLeaf, type Row } from "../model/arguments";
import { countGlyphs, nameGlyph, splitGlyphs } from "../model/glyphs";
import { EndMark } from "./aim";
import { count, plural } from "./format";

/** A text of a caller. Written from left to right in the order of its characters, whatever they ask for. */
export function Exact({ text }: { text: string }): JSX.Element {
  return (
    <bdi class="exact">
      {splitGlyphs(text).map(({ text: piece, kind }, at) => {
        if (kind === "plain") return piece;
        if (kind === "line") return <><span key={at} class="cp" title="a new line">↵</span>{"\n"}</>;
        if (kind === "hidden") return <span key={at} class="cp" title="a character that is not seen">{nameGlyph(piece)}</span>;
        return <span key={at} class="cp-alike" title="looks like another character">{piece}<span class="cp">{nameGlyph(piece)}</span></span>;
      })}
    </bdi>
  );
}

/** How many characters of these texts are shown by their numbers; nothing where there is none. */
export function GlyphNote({ texts }: { texts: string[] }): JSX.Element | null {
  const { hidden, alike } = countGlyphs(texts);
  if (hidden + alike === 0) return null;
  const found = [hidden > 0 && plural(hidden, "hidden character"), alike > 0 && plural(alike, "look-alike character")].filter(Boolean);
  return <p class="owed small" role="note">{found.join(" and ")} {hidden + alike === 1 ? "is" : "are"} marked by number.</p>;
}

/** Every text in some documents, for `GlyphNote`. */
export function listTexts(...documents: unknown[]): string[] {
  return documents.flatMap((each) => listRows(each).flatMap((row) => [row.name, row.value]));
}

const PAGE = 200;

/** All of a call's arguments, in a box that has to be read to its end. `before`: what another call had, to compare. */
export function Arguments({ label, value, before }: { label: string; value: unknown; before?: unknown }): JSX.Element {
  const [limit, setLimit] = useState(PAGE);
  const [isOpen, setOpen] = useState(false);
  const isCompared = before !== undefined;
  const { rows, gone } = isCompared ? compareRows(value, before) : { rows: listRows(value).map((each): ComparedRow => ({ ...each, before: null })), gone: [] };
  const shown = rows.slice(0, limit);
  const isWhole = shown.length === rows.length;
  return (
    <>
      <div class={isOpen ? "args rows open" : "args rows"} tabIndex={0} role="group" aria-label={label}>
        {rows.length === 0 && <span class="f2">no arguments</span>}
        <ul>
          {shown.map((each) => <ArgumentRow key={each.path} row={each} />)}
          {isWhole && gone.map((each) => <GoneRow key={each.path} row={each} />)}
        </ul>
        <EndMark reachable={isWhole} />
      </div>
      <span class="row small">
        {!isWhole && <button type="button" class="btn" onClick={() => setLimit(limit + PAGE * 10)}>Show more of {plural(rows.length, "value")}</button>}
        <button type="button" class="btn ghost" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{isOpen ? "Fold" : "Unfold"} {label.toLowerCase()}</button>
        <span class="f3">{count(rows.length)} {rows.length === 1 ? "value" : "values"}</span>
      </span>
    </>
  );
}

function ArgumentRow({ row }: { row: ComparedRow }): JSX.Element {
  const isChanged = row.before !== null;
  return (
    <li style={{ paddingLeft: `${Math.min(row.depth, 12) * 14}px` }} class={isChanged ? "changed" : ""}>
      <span class="name"><Exact text={row.name} /></span> <span class="type">{row.isLeaf ? row.type : `${row.type} of ${row.value}`}</span>{" "}
      {row.isLeaf && <span class="value"><Exact text={quoteLeaf(row)} /></span>}
      {row.before === undefined && <span class="was"> not in the last one</span>}
      {typeof row.before === "string" && <span class="was"> was <Exact text={row.before} /></span>}
    </li>
  );
}

function GoneRow({ row }: { row: Row }): JSX.Element {
  return <li class="changed"><span class="name gone"><Exact text={row.path} /></span> <span class="was">only in the last one: <Exact text={quoteLeaf(row)} /></span></li>;
}
