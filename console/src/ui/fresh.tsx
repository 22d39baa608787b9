// Rows that come while a list is read: they wait behind a chip, so that nothing moves under the pointer.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "./format";

interface Fresh<T> {
  /** The rows to draw: those that were there before, as they are now. */
  shown: T[];
  /** To draw before the first row: where the top of the list is, and how many rows wait. */
  chip: JSX.Element;
}

/** Hold new rows back unless the top of the list is in view; a click, or scrolling there, shows them. */
export function useFresh<T>(rows: T[], keyOf: (row: T) => string): Fresh<T> {
  const top = useRef<HTMLDivElement>(null);
  const isAtTop = useRef(true);
  const known = useRef(new Set<string>());
  const [, redraw] = useState(0);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => {
      isAtTop.current = entries.at(-1)!.isIntersecting;
      if (isAtTop.current) redraw((n) => n + 1);
    });
    observer.observe(top.current!);
    return () => observer.disconnect();
  }, []);
  const take = (): void => {
    known.current = new Set(rows.map(keyOf));
  };
  // Above an empty list nothing can move.
  if (isAtTop.current || known.current.size === 0) take();
  const shown = rows.filter((each) => known.current.has(keyOf(each)));
  const waiting = rows.length - shown.length;
  const show = (): void => {
    take();
    redraw((n) => n + 1);
    top.current!.focus();
  };
  const chip = (
    <>
      <div class="list-top" ref={top} tabIndex={-1} />
      {waiting > 0 && <div class="fresh"><button type="button" class="btn" onClick={show}>{count(waiting)} new</button></div>}
    </>
  );
  return { shown, chip };
}
