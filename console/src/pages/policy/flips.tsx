// Which past decisions another policy would turn: a strip of all decisions with an arrow for each flip, and the flips.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, AS_YAML, api, read } from "../../api/client";
import { ago, clock, count, day, plural } from "../../ui/format";
import { Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Verdict } from "./explain";

type Flip = Schemas["FlipItem"];
type Timeline = Schemas["Timeline"];

const SHOWN = 50;
const VERDICTS = ["allow", "defer", "deny"] as const;

export function Flips({ space, text, ready }: { space: string; text: string; ready: boolean }): JSX.Element {
  const impact = useLoad(async () => {
    if (!ready) return null;
    const params = { path: { space_id: space } };
    return read(api.POST("/v1/spaces/{space_id}/policy/impact", { params, body: text, ...AS_YAML }));
  }, [space, text, ready]);
  const [to, setTo] = useState<string | null>(null);
  const value = ready ? impact.value : null;
  const flips = value?.flips.filter((each) => to === null || each.after.verdict === to) ?? [];
  const countTo = (verdict: string): number => Object.entries(value?.counts ?? {}).reduce((sum, [kind, n]) => sum + (kind.endsWith(`→${verdict}`) ? n : 0), 0);
  return (
    <Panel
      title="Would flip"
      note={value ? `${count(value.n_flips)} of ${plural(value.decisions, "past decision")}` : ""}
      actions={value !== null && value.n_flips > 0 && (
        <span class="tabs" role="group" aria-label="Which flips">
          <button type="button" aria-pressed={to === null} onClick={() => setTo(null)}>All</button>
          {VERDICTS.filter((each) => countTo(each) > 0).map((each) => <button key={each} type="button" aria-pressed={to === each} onClick={() => setTo(each)}>To {each} {count(countTo(each))}</button>)}
        </span>
      )}
    >
      {impact.error !== null && ready && <Failure error={impact.error} retry={impact.again} />}
      {!ready && <p class="note pad">Change the file, without an error, to see which past decisions it would turn.</p>}
      {ready && impact.loading && !value && <Skeleton height={90} />}
      {value?.timeline && <Strip timeline={value.timeline} flips={flips} />}
      {value && value.n_flips === 0 && <p class="note pad">No past decision flips.</p>}
      <ul class="flips">
        {flips.slice(0, SHOWN).map((each) => (
          <li key={`${each.seq}${each.proposal_id}`}>
            <div class="row"><span class="mono strong grow clip">{each.tool_ids[0] ?? "state"}</span><Verdict of={each.before.verdict} /><span aria-label="to">→</span><Verdict of={each.after.verdict} /></div>
            <p class="f2 small">{each.after.rules?.[0]?.line ? `Line ${each.after.rules[0].line}: ${each.after.rules[0].condition ?? each.after.rules[0].name ?? ""}` : each.after.reason_code} <span class="f3">{each.proposal_id} by {each.actor.id}, entry {each.seq}, {ago(Date.parse(each.ts), Date.now())}</span></p>
          </li>
        ))}
      </ul>
      {value && flips.length > SHOWN && <p class="note pad">The first {SHOWN} are listed.</p>}
      {value && value.n_unknown > 0 && <p class="note pad">{plural(value.n_unknown, "decision")} cannot be decided again.</p>}
      {value && value.n_flips > 0 && <p class="note pad">{count(value.decisions - value.n_flips - value.n_unknown)} stay as they were. Belief as it was then.</p>}
    </Panel>
  );
}

const WIDTH = 460;
const LEFT = 48;
const ROW = 22;
const TOP = 8;
const BOTTOM = TOP + ROW * VERDICTS.length;

/** Where a row of the strip stands. */
function rowOf(verdict: string): number {
  return TOP + ROW * VERDICTS.indexOf(verdict as (typeof VERDICTS)[number]) + ROW / 2;
}

/** When decisions were made, a row for each verdict, darker where there were more; arrows lead from what was to what would be. */
function Strip({ timeline, flips }: { timeline: Timeline; flips: Flip[] }): JSX.Element {
  const [first, last] = [Date.parse(timeline.first_ts), Date.parse(timeline.last_ts)];
  const part = (WIDTH - LEFT - 8) / timeline.n_parts;
  const x = (ts: string): number => LEFT + (last > first ? ((Date.parse(ts) - first) / (last - first)) * (WIDTH - LEFT - 8 - part) : 0) + part / 2;
  const most = Math.max(...timeline.parts.flatMap((part) => VERDICTS.map((each) => part[each])));
  const label = (at: number): string => (last - first < 600_000 ? clock(at) : last - first < 86_400_000 ? clock(at).slice(0, 5) : day(at));
  const sums = VERDICTS.map((each) => `${plural(timeline.parts.reduce((sum, part) => sum + part[each], 0), "decision")} to ${each}`).join(", ");
  return (
    <svg class="strip-of-flips" viewBox={`0 0 ${WIDTH} ${BOTTOM + 18}`} role="img" aria-label={`From ${ago(first, Date.now())} to ${ago(last, Date.now())}: ${sums}; ${plural(flips.length, "arrow")} for what would flip`}>
      {VERDICTS.map((each) => (
        <g key={each} class={each}>
          <text x={0} y={rowOf(each) + 4}>{each}</text>
          <line x1={LEFT} x2={WIDTH - 8} y1={rowOf(each)} y2={rowOf(each)} />
          {timeline.parts.map((found) => found[each] > 0 && <rect key={found.part} x={LEFT + found.part * part} y={rowOf(each) - 5} width={Math.max(2, part - 1.5)} height={10} opacity={0.35 + (0.65 * Math.log2(found[each] + 1)) / Math.log2(most + 1)} />)}
        </g>
      ))}
      {flips.slice(0, SHOWN).map((each) => {
        const [from, to] = [rowOf(each.before.verdict), rowOf(each.after.verdict)];
        const [at, towards] = [x(each.ts), to > from ? -1 : 1];
        return (
          <g key={`${each.seq}${each.proposal_id}`} class="arrow">
            <path d={`M${at} ${from}V${to}M${at - 4} ${to + towards * 5}L${at} ${to}L${at + 4} ${to + towards * 5}`} />
            <circle cx={at} cy={from} r={3.5} />
          </g>
        );
      })}
      <text x={LEFT} y={BOTTOM + 14}>{label(first)}</text>
      {last > first && <text x={WIDTH - 8} y={BOTTOM + 14} text-anchor="end">{label(last)}</text>}
    </svg>
  );
}
