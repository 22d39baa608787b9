// The chart's data as a table.

import type { JSX } from "preact";
import type { SessionLog } from "../../model/log";
import { bitsOf } from "../../model/log";
import { bits, clock, count } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { Monogram, VirtualRows } from "../../ui/parts";

const ROW = 28;

export function EventTable({ log, size, at, open }: { log: SessionLog; size: number; at: number; open: (seq: number) => void }): JSX.Element {
  return (
    <div class="event-table">
      <div class="erow head f3" aria-hidden="true">
        <span>Event</span><span>Time</span><span>Source</span><span>What</span><span class="right">Ruled out</span><span class="right">Left</span><span class="right">Bits</span>
      </div>
      <VirtualRows
        total={size}
        rowHeight={ROW}
        height={392}
        label="Events"
        row={(seq) => (
          <div key={seq} role="listitem" class={seq > at ? "erow future-row" : "erow"}>
            <button type="button" class="link num" onClick={() => open(seq)}>#{seq}</button>
            <span class="num f3">{clock(log.time(seq))}</span>
            <span class="clip"><Monogram source={log.sources[log.source.at(seq)]} /> {log.sources[log.source.at(seq)]?.name}</span>
            <span class="clip">
              {log.refused[seq] && <><Icon of="refused" tone="refused" /> <span class="refused">refused </span></>}
              {log.kinds[seq]} <span class="mono f2">{log.subjects[seq]}</span>
            </span>
            <span class="num right">{log.removed.at(seq) ? count(log.removed.at(seq)) : ""}</span>
            <span class="num right">{count(log.left.at(seq))}</span>
            <span class="num right f3">{bits(bitsOf(log.left.at(seq)))}</span>
          </div>
        )}
      />
    </div>
  );
}
