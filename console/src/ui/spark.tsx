// Bits left by event, in a line of text; each on its own scale.

import type { JSX } from "preact";
import { count, plural } from "./format";

const WIDTH = 160;
const HEIGHT = 34;

export function Spark({ trail, head, universe, left, closed }: { trail: [number, number][]; head: number; universe: number; left: number; closed: boolean }): JSX.Element | null {
  if (trail.length === 0) return null;
  const last = Math.max(1, head);
  const top = Math.max(1, Math.log2(universe + 1));
  const x = (seq: number): number => 3 + ((WIDTH - 8) * seq) / last;
  const y = (n: number): number => 3 + (HEIGHT - 8) * (1 - Math.log2(n + 1) / top);
  let line = `M${x(0)} ${y(universe).toFixed(1)}`;
  for (const [seq, n] of trail) line += `H${x(seq).toFixed(1)}V${y(n).toFixed(1)}`;
  line += `H${x(last)}`;
  return (
    <svg class={`spark ${closed ? "closed" : left === 0 ? "zero" : ""}`} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`from ${count(universe)} to ${count(left)} in ${plural(head + 1, "event")}`}>
      <path class="a" d={`${line}V${HEIGHT - 3}H${x(0)}Z`} />
      <path class="l" d={line} />
      <circle class="e" cx={x(last)} cy={y(left)} r={3} />
    </svg>
  );
}
