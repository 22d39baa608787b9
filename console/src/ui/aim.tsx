// A press counts for the card that it was aimed at: one that was read to its end, stood still in view for a second, and
// was pressed and released.

import { type ComponentChildren, type JSX, type TargetedKeyboardEvent, type TargetedMouseEvent, createContext } from "preact";
import { useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

const MIN_VIEW_MS = 1000;

interface Reading {
  expect: (mark: object) => () => void;
  see: (mark: object) => void;
}

const ReadingContext = createContext<Reading | null>(null);

/** The end of something that has to be read before its card can be acted on. Where it is not `reachable` yet, more has
 * to be opened first. */
export function EndMark({ reachable = true }: { reachable?: boolean }): JSX.Element {
  const reading = useContext(ReadingContext);
  const element = useRef<HTMLSpanElement>(null);
  const mark = useMemo(() => ({}), []);
  useLayoutEffect(() => reading?.expect(mark), [reading]);
  useEffect(() => {
    if (!reachable || reading === null) return undefined;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((each) => each.isIntersecting)) reading.see(mark);
    });
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, [reading, reachable]);
  return <span class="end-mark" ref={element} aria-hidden="true" />;
}

export interface Aim {
  /** For the row of buttons, which has to be in view. */
  foot: { current: HTMLDivElement | null };
  /** Whether it stood in view for a second. */
  isLooked: boolean;
  /** Whether it was read to its end too. */
  ready: boolean;
  /** What has to happen first; null where a press counts. */
  lacks: string | null;
  reading: Reading;
  /** The handlers of a button whose press counts only when it is aimed; `looked` is enough for what says no. */
  aimed: (act: () => void, needs?: "read" | "looked") => Handlers;
}

interface Handlers {
  onPointerDown: () => void;
  onKeyDown: (event: TargetedKeyboardEvent<HTMLButtonElement>) => void;
  onClick: (event: TargetedMouseEvent<HTMLButtonElement>) => void;
}

function findPlace(element: HTMLElement): string {
  const { left, top } = element.getBoundingClientRect();
  return `${Math.round(left + scrollX)} ${Math.round(top + scrollY)}`;
}

/** Aim at a card that shows `shown`: whenever that changes, it has to be read and looked at anew. */
export function useAim(shown: string): Aim {
  const foot = useRef<HTMLDivElement>(null);
  const [unread, setUnread] = useState<ReadonlySet<object>>(new Set());
  const [looked, setLooked] = useState("");
  const place = useRef("");
  const pressed = useRef<string | null>(null);
  const inView = useRef(false);
  const seen = useRef("");
  const timer = useRef(0);
  const reading = useMemo<Reading>(() => ({
    expect: (mark) => {
      setUnread((before) => new Set(before).add(mark));
      return () => setUnread((before) => new Set([...before].filter((each) => each !== mark)));
    },
    see: (mark) => setUnread((before) => (before.has(mark) ? new Set([...before].filter((each) => each !== mark)) : before)),
  }), [shown]);
  // From now on it has to stand still for a second.
  const look = (): void => {
    clearTimeout(timer.current);
    pressed.current = null;
    if (!foot.current) return;
    place.current = findPlace(foot.current);
    seen.current = "";
    setLooked("");
    if (inView.current) timer.current = window.setTimeout(() => {
      if (foot.current && findPlace(foot.current) !== place.current) look();
      else {
        seen.current = shown;
        setLooked(shown);
      }
    }, MIN_VIEW_MS);
  };
  useEffect(() => {
    if (!foot.current) return undefined;
    const views = new IntersectionObserver((entries) => {
      const isInView = entries.at(-1)!.isIntersecting;
      if (isInView === inView.current) return;
      inView.current = isInView;
      // What was looked at may leave the view and come back.
      if (isInView && seen.current !== shown) look();
      if (!isInView) clearTimeout(timer.current);
    }, { threshold: 0.9 });
    views.observe(foot.current);
    // Whatever grows on the page may have moved the card.
    const sizes = new ResizeObserver(() => {
      if (foot.current && findPlace(foot.current) !== place.current) look();
    });
    sizes.observe(document.body);
    look();
    return () => {
      clearTimeout(timer.current);
      views.disconnect();
      sizes.disconnect();
    };
  }, [shown, foot.current === null]);
  const isLooked = looked === shown && shown !== "";
  const ready = isLooked && unread.size === 0;
  const lacks = unread.size > 0 ? "Read it to the end first." : isLooked ? null : "Look at it for a second first.";
  const aimed: Aim["aimed"] = (act, needs = "read") => ({
    onPointerDown: () => {
      if (!foot.current) return;
      if (findPlace(foot.current) === place.current) pressed.current = isLooked ? shown : null;
      else look();
    },
    // A key that is held down does not press the next button too.
    onKeyDown: (event) => {
      if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
    },
    onClick: (event) => {
      const isPressed = event.detail === 0 || pressed.current === shown;
      pressed.current = null;
      if (isPressed && (needs === "looked" ? isLooked : ready)) act();
    },
  });
  return { foot, isLooked, ready, lacks, reading, aimed };
}

/** The card that an aim is at, with everything in it that has to be read. */
export function Aimed({ aim, label, children }: { aim: Aim; label: string; children: ComponentChildren }): JSX.Element {
  return (
    <ReadingContext.Provider value={aim.reading}>
      <div class="card" tabIndex={-1} role="group" aria-label={label}>
        <EndMark />
        {children}
      </div>
    </ReadingContext.Provider>
  );
}

/** The buttons of a card, and what has to happen before they count. */
export function AimedFoot({ aim, children }: { aim: Aim; children: ComponentChildren }): JSX.Element {
  return (
    <div class="foot-row" ref={aim.foot}>
      <p class="row">{children}</p>
      <p class="f3 small lacks">{aim.lacks}</p>
    </div>
  );
}
