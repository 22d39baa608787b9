// The answer at a glance: how many are left, who ruled out the rest, what is blocking.

import type { JSX } from "preact";
import { bitsOf, type SessionLog } from "../../model/log";
import { bits, count, plural } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Monogram, useChanged } from "../../ui/parts";
import { Link } from "../../ui/router";
import { useBlockers } from "../actions/gates";

const MAX_CELLS = 120;
const MAX_BLOCKING = 3;

export function AnswerStrip({ id, log, at, past }: { id: string; log: SessionLog; at: number; past: boolean }): JSX.Element {
  const left = log.left.at(at);
  const counts = log.countBySource(at);
  const tone = left === 0 ? "contra" : "holds";
  const blockers = useBlockers(id);
  const changed = useChanged(left);
  return (
    <section class="panel strip" aria-label="Where this stands">
      <div>
        <h2>Still possible</h2>
        <div class="answer">
          <b class={`num ${tone} ${count(left).length > 4 ? "long" : ""} ${changed ? "under" : ""}`} data-testid="left">{count(left)}</b>
          <div>
            <div class="strong of">of {plural(log.universeSize, "cause")} left</div>
            <div class="f2 num">
              {left === 0 ? "contradiction: nothing fits" : `${bits(bitsOf(left))} of ${bits(bitsOf(log.universeSize))} bits to go`}
            </div>
          </div>
        </div>
      </div>
      <div>
        <h2>{left === log.universeSize ? "Nothing is ruled out yet" : `Who ruled out the other ${count(log.universeSize - left)}`}</h2>
        <Universe log={log} left={left} counts={counts} />
        <div class="legend">
          <span><Icon of={left === 0 ? "contra" : "alive"} tone={tone} />alive <b class="num">{count(left)}</b></span>
          {log.sources.map((source, n) => counts[n]! > 0 && (
            <span key={source.id} title={source.id}><Monogram source={source} />{source.name} <b class="num">{count(counts[n]!)}</b></span>
          ))}
        </div>
      </div>
      <div>
        <h2>What is blocking</h2>
        <ul class="block">
          <Obligations log={log} at={at} most={past ? MAX_BLOCKING : MAX_BLOCKING - blockers.length} />
          {!past && blockers.map((each) => (
            <li key={each.key}>
              <Icon of={each.icon} tone={each.tone} size={16} />
              <span class="clip">{each.text}</span>
              {each.yours ? <Link class="chip yours" to={each.to}>Review</Link> : <Link class="f2 under" to={each.to}>gate</Link>}
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}

function Obligations({ log, at, most }: { log: SessionLog; at: number; most: number }): JSX.Element {
  const open = log.openObligations(at);
  const left = log.left.at(at);
  if (log.endedBy(at)) {
    const found = [...log.conclusions].reverse().find((each) => each.seq <= at);
    return (
      <li>
        <Icon of="flag" tone="holds" size={16} />
        <span class="clip">{found ? <>closed: <span class="mono">{found.id}</span></> : "closed"}</span>
        <span class="f3 num">#{log.endedAt}</span>
      </li>
    );
  }
  if (open.length === 0) {
    return (
      <li>
        <Icon of={left === 0 ? "contra" : "check"} tone={left === 0 ? "contra" : "holds"} size={16} />
        <span class="clip f2">{left === 0 ? "Nothing is left: a wrong answer, or a cause that is not listed" : left === 1 ? "No obligation is open" : `No obligation is open; ${plural(left, "cause")} left to tell apart`}</span>
      </li>
    );
  }
  return (
    <>
      {open.slice(0, most).map((each) => {
        const done = each.startedAt - left;
        const more = Math.max(0, each.needed - done);
        return (
          <li key={each.id}>
            <Icon of="lock" tone="owed" size={16} />
            <span class="clip" title={each.id}>
              {more > 0 ? <b class="owed">{count(more)} more must be ruled out</b> : <b class="holds">enough is ruled out</b>}{" "}
              <span class="f2">{more > 0 ? "before anyone may conclude" : `${each.id} can be left`}</span>
            </span>
            <span class="f2 num">{count(done)} / {count(each.needed)}</span>
          </li>
        );
      })}
    </>
  );
}

/** The universe as one bar: a cell a hypothesis up to 120, else shares. */
function Universe({ log, left, counts }: { log: SessionLog; left: number; counts: number[] }): JSX.Element {
  const parts = [{ key: "alive", n: left, class: "alive-cell" }, ...log.sources.map((source, n) => ({ key: source.id, n: counts[n]!, class: `off s${source.colour}` }))];
  const label = `${count(left)} alive, ${log.sources.map((source, n) => (counts[n]! > 0 ? `${count(counts[n]!)} ruled out by ${source.name}` : "")).filter(Boolean).join(", ")}; linear`;
  const cells = log.universeSize <= MAX_CELLS;
  return (
    <div class={cells ? "uni" : "uni shares"} role="img" aria-label={label}>
      {cells
        ? parts.flatMap((part) => Array.from({ length: part.n }, (_, n) => <i key={`${part.key}${n}`} class={part.class} />))
        : parts.map((part) => part.n > 0 && <i key={part.key} class={part.class} style={{ flexGrow: part.n }} />)}
    </div>
  );
}

