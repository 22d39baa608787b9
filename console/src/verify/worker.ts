// Verification off the page's thread: answers of /audit or an export in, progress and verdicts out.

import { joinExport, splitAnswer, splitExport, type RawEntry } from "./reading";
import { checkStream, type Verdict } from "./verify";

export type Order =
  | { kind: "page"; text: string }
  | { kind: "check"; stream: string }
  | { kind: "export"; stream: string }
  | { kind: "file"; text: string };

export type Report =
  | { kind: "page"; cursor: string | null; events: number }
  | { kind: "progress"; done: number }
  | { kind: "verdicts"; verdicts: Verdict[] }
  | { kind: "export"; text: string }
  | { kind: "failed"; reason: string };

const entries: RawEntry[] = [];
const tell = (report: Report): void => self.postMessage(report);

function obey(order: Order): void {
  switch (order.kind) {
    case "page": {
      const page = splitAnswer(order.text);
      for (const entry of page.entries) entries.push(entry);
      return tell({ kind: "page", cursor: page.cursor, events: entries.length });
    }
    case "check":
      return tell({ kind: "verdicts", verdicts: [checkStream(order.stream, entries, (done) => tell({ kind: "progress", done }))] });
    case "export":
      return tell({ kind: "export", text: joinExport(order.stream, entries) });
    case "file": {
      const verdicts = splitExport(order.text).map((stream) => {
        const verdict = checkStream(stream.name, stream.entries, (done) => tell({ kind: "progress", done }));
        if (verdict.state === "holds" && (verdict.head !== stream.headHash || verdict.events !== stream.headSeq + 1)) {
          return { ...verdict, state: "broken" as const, seq: verdict.events - 1, reason: "does not end where the file says", expected: stream.headHash, found: verdict.head };
        }
        return verdict;
      });
      return tell({ kind: "verdicts", verdicts });
    }
  }
}

self.onmessage = (message: MessageEvent<Order>) => {
  try {
    obey(message.data);
  } catch (error) {
    tell({ kind: "failed", reason: error instanceof Error ? error.message : String(error) });
  }
};
