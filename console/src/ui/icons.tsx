// The marks of the console. Each status has its own shape, so it survives greyscale.

import type { JSX } from "preact";

const SHAPES = {
  alive: (
    <>
      <circle cx="8" cy="8" r="5" fill="currentColor" stroke="none"/>
    </>
  ),
  ring: (
    <>
      <circle cx="8" cy="8" r="5"/>
    </>
  ),
  gone: (
    <>
      <circle cx="8" cy="8" r="5"/><path d="M3 13 13 3"/>
    </>
  ),
  refused: (
    <>
      <path d="M5.4 1.8h5.2l3.6 3.6v5.2l-3.6 3.6H5.4l-3.6-3.6V5.4z"/><path d="M5 8h6" stroke-width="2"/>
    </>
  ),
  lock: (
    <>
      <rect x="3" y="7" width="10" height="7" rx="1.2" fill="currentColor" stroke="none"/><path d="M5.2 7V5a2.8 2.8 0 0 1 5.6 0v2"/>
    </>
  ),
  unlock: (
    <>
      <rect x="3" y="7" width="10" height="7" rx="1.2"/><path d="M5.2 7V4.4a2.8 2.8 0 0 1 5.4-1"/>
    </>
  ),
  contra: (
    <>
      <path d="M8 1 15 8 8 15 1 8z" fill="currentColor" stroke="none"/><path d="M5.4 10.6 10.6 5.4" stroke="var(--bg)"/><circle cx="8" cy="8" r="2.5" stroke="var(--bg)"/>
    </>
  ),
  person: (
    <>
      <circle cx="8" cy="5" r="2.8" fill="currentColor" stroke="none"/><path d="M2.8 14c.4-3.2 2.3-4.8 5.2-4.8s4.8 1.6 5.2 4.8z" fill="currentColor" stroke="none"/>
    </>
  ),
  verified: (
    <>
      <path d="M8 1.5 13.5 3.5v4c0 3.4-2.2 5.8-5.5 7-3.3-1.2-5.5-3.6-5.5-7v-4z"/><path d="m5.4 8 1.900 1.900 3.4-3.700"/>
    </>
  ),
  unverified: (
    <>
      <path d="M8 1.5 13.5 3.5v4c0 3.4-2.2 5.8-5.5 7-3.3-1.2-5.5-3.6-5.5-7v-4z" stroke-dasharray="2 2"/>
    </>
  ),
  broken: (
    <>
      <path d="M8 1.5 13.5 3.5v4c0 3.4-2.2 5.8-5.5 7-3.3-1.2-5.5-3.6-5.5-7v-4z"/><path d="m8.6 2-1.8 4 2.6 2-1.8 5.8"/>
    </>
  ),
  flag: (
    <>
      <path d="M4 14.5v-13"/><path d="M4 2h8.5l-2 3 2 3H4z" fill="currentColor"/>
    </>
  ),
  wait: (
    <>
      <path d="M4 2h8M4 14h8M5 2c0 3 3 4 3 6s-3 3-3 6M11 2c0 3-3 4-3 6s3 3 3 6"/>
    </>
  ),
  check: (
    <>
      <path d="m3 8.5 3.2 3.2L13 4.5"/>
    </>
  ),
  cross: (
    <>
      <path d="m4 4 8 8M12 4l-8 8"/>
    </>
  ),
  search: (
    <>
      <circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3.5 3.5"/>
    </>
  ),
  cases: (
    <>
      <path d="M1.5 3h13M3.5 7h9M5.5 11h5M7 14.5h2"/>
    </>
  ),
  graph: (
    <>
      <circle cx="3.5" cy="8" r="2"/><circle cx="12.5" cy="3.5" r="2"/><circle cx="12.5" cy="12.5" r="2"/><path d="m5.3 7.100 5.4-2.700M5.3 8.900l5.4 2.700"/>
    </>
  ),
  actions: (
    <>
      <path d="M2 4h6M2 12h6M10.5 2v12M10.5 8h4m-2-2 2 2-2 2"/>
    </>
  ),
  policy: (
    <>
      <path d="M3 1.5h7l3 3v10H3z"/><path d="M5.5 7h5M5.5 10h5"/>
    </>
  ),
  compare: (
    <>
      <path d="M2 3h3.5c3 0 2 10 5 10H14M8 7.5C9 5 9 3 11 3h3"/>
    </>
  ),
  ledger: (
    <>
      <rect x="1.5" y="5.5" width="6" height="5" rx="2.5"/><rect x="8.5" y="5.5" width="6" height="5" rx="2.5"/><path d="M6 8h4"/>
    </>
  ),
  key: (
    <>
      <circle cx="5" cy="8" r="3"/><path d="M8 8h6.5M12 8v2.5"/>
    </>
  ),
  sun: (
    <>
      <circle cx="8" cy="8" r="3"/><path d="M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1"/>
    </>
  ),
  first: (
    <>
      <path d="M4 3v10M12.5 3.5 6.5 8l6 4.5z"/>
    </>
  ),
  prev: (
    <>
      <path d="m10 3.5-5 4.5 5 4.5"/>
    </>
  ),
  next: (
    <>
      <path d="m6 3.5 5 4.5-5 4.5"/>
    </>
  ),
  play: (
    <>
      <path d="M5 3v10l8-5z"/>
    </>
  ),
  down: (
    <>
      <path d="M8 2v8.5m-3.5-3.5L8 10.5 11.5 7M3 14h10"/>
    </>
  ),
  plus: (
    <>
      <path d="M8 3v10M3 8h10"/>
    </>
  ),
  chev: (
    <>
      <path d="m4 6 4 4 4-4"/>
    </>
  ),
  warn: (
    <>
      <path d="M8 2 15 14H1z"/><path d="M8 6.5v3.5M8 12v.2"/>
    </>
  ),
  bell: (
    <>
      <path d="M8 2a4 4 0 0 0-4 4v3.5L2.8 11.5h10.4L12 9.5V6a4 4 0 0 0-4-4z" fill="currentColor" stroke="none"/><path d="M6.8 13.5a1.3 1.3 0 0 0 2.4 0"/>
    </>
  ),
  pause: (
    <>
      <path d="M5 3v10M11 3v10" stroke-width="2.5"/>
    </>
  ),
  menu: (
    <>
      <path d="M2 4h12M2 8h12M2 12h12"/>
    </>
  ),
} satisfies Record<string, JSX.Element>;

export type Shape = keyof typeof SHAPES;

/** A mark of 14 pixels. It is decoration: the word stands beside it, or `label` says it. */
export function Icon({ of, tone = "", size, label }: { of: Shape; tone?: string; size?: number; label?: string }): JSX.Element {
  const style = size ? { width: `${size}px`, height: `${size}px` } : undefined;
  return (
    <svg class={`g ${tone}`} viewBox="0 0 16 16" style={style} {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" })}>
      {SHAPES[of]}
    </svg>
  );
}

/** The same mark inside of a chart, centred on a point. */
export function Mark({ of, x, y, size, tone }: { of: Shape; x: number; y: number; size: number; tone: string }): JSX.Element {
  return (
    <svg class={`mark ${tone}`} x={x - size / 2} y={y - size / 2} width={size} height={size} viewBox="0 0 16 16">
      {SHAPES[of]}
    </svg>
  );
}
