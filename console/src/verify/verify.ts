// What the worker does with a stream: every entry in turn, the first bad one named.

import { ChainCheck, Mismatch, SessionCheck, OtherFormat } from "./session";
import type { RawEntry } from "./reading";

export interface Verdict {
  state: "holds" | "broken" | "unknown";
  stream: string;
  events: number;
  commitments: number;
  decided: boolean;
  head: string;
  left: number | null;
  milliseconds: number;
  /** Where it is broken: the first bad event. */
  seq: number;
  reason: string;
  expected: string;
  found: string;
}

export function checkStream(
  stream: string,
  entries: RawEntry[],
  progress: (done: number) => void = () => undefined,
  now: () => number = () => performance.now(),
): Verdict {
  const began = now();
  const session = stream.startsWith("space:") ? null : new SessionCheck(stream);
  const chain = session?.chain ?? new ChainCheck(stream, true);
  const verdict: Verdict = {
    state: "holds",
    stream,
    events: 0,
    commitments: 0,
    decided: session !== null,
    head: "",
    left: null,
    milliseconds: 0,
    seq: -1,
    reason: "",
    expected: "",
    found: "",
  };
  try {
    for (const entry of entries) {
      if (session) session.append(entry);
      else appendToChain(chain, entry);
      if (chain.size % 256 === 0) progress(chain.size);
    }
  } catch (error) {
    if (error instanceof Mismatch) {
      Object.assign(verdict, { state: "broken", seq: error.seq, reason: error.reason, expected: error.expected, found: error.found });
    } else if (error instanceof OtherFormat) {
      Object.assign(verdict, { state: "unknown", reason: error.message });
    } else throw error;
  }
  verdict.events = chain.size;
  verdict.commitments = session?.commitments ?? 0;
  verdict.head = chain.head;
  verdict.left = session?.left ?? null;
  verdict.milliseconds = now() - began;
  return verdict;
}

function appendToChain(chain: ChainCheck, entry: RawEntry): void {
  const seq = chain.size;
  try {
    chain.append(entry);
  } catch (error) {
    if (error instanceof Mismatch) error.seq = seq;
    else if (error instanceof SyntaxError || error instanceof TypeError) {
      const mismatch = new Mismatch(`cannot be read: ${error.message}`);
      mismatch.seq = seq;
      throw mismatch;
    }
    throw error;
  }
}
