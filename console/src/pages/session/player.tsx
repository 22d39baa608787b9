// The slider that replays the session to any event.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Extent } from "../../model/funnel";
import type { SessionLog } from "../../model/log";
import { count } from "../../ui/format";
import { Icon } from "../../ui/icons";
import { useKeys } from "../../ui/keys";

const FRAME_MS = 350;

/** `extent`: the events that the chart above draws, whose axis the slider shares. */
export function Player({ log, at, move, following, extent = null }: { log: SessionLog; at: number; move: (seq: number) => void; following: boolean; extent?: Extent | null }): JSX.Element {
  const [playing, setPlaying] = useState(false);
  const head = log.head;
  const { first, last } = extent ?? { first: 0, last: head };
  const toggle = (): void => {
    if (!playing && at >= head) move(0);
    setPlaying(!playing);
  };
  useEffect(() => {
    if (!playing) return undefined;
    if (at >= head) {
      setPlaying(false);
      return undefined;
    }
    const by = Math.max(1, Math.round(head / 120));
    const timer = setTimeout(() => move(at + by), FRAME_MS);
    return () => clearTimeout(timer);
  }, [playing, at, head]);
  useKeys({ Space: toggle });
  return (
    <div class="player">
      <div class="ctl">
        <button type="button" class="btn icon ghost" aria-label="First event" onClick={() => move(0)}><Icon of="first" /></button>
        <button type="button" class="btn icon ghost" aria-label="Back one event" onClick={() => move(at - 1)}><Icon of="prev" /></button>
        <button type="button" class="btn icon ghost" aria-label={playing ? "Pause" : "Play"} onClick={toggle}><Icon of={playing ? "pause" : "play"} /></button>
        <button type="button" class="btn icon ghost" aria-label="On one event" onClick={() => move(at + 1)}><Icon of="next" /></button>
      </div>
      <input
        type="range"
        min={first}
        max={last}
        value={at}
        aria-label="Event"
        aria-valuetext={`event ${at} of ${head}, ${count(log.left.at(at))} left`}
        style={{ "--p": `${last === first ? 100 : (100 * (at - first)) / (last - first)}%` }}
        onInput={(event) => move(Number(event.currentTarget.value))}
      />
      <div class="pos num">
        {following && <span class="live" />} {at} / {head}
        {following ? ", live" : ""}
      </div>
    </div>
  );
}
