// Verification off the page's thread: answers of /audit or an export in, progress and verdicts out.

import { joinExport, splitAnswer, type RawEntry } from "./reading";
import { checkFile, checkStream, type FileVerdict, type KeptHead, type Verdict } from "./verify";

export type Order =
  | { kind: "page"; text: string }
  | { kind: "check"; stream: string }
  | { kind: "export"; stream: string }
  | { kind: "file"; text: string; kept: KeptHead[] };

export type Report =
  | { kind: "page"; cursor: string | null; events: number }
  | { kind: "progress"; done: number }
  | { kind: "verdict"; verdict: Verdict }
  | { kind: "file"; file: FileVerdict }
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
      return tell({ kind: "verdict", verdict: checkStream(order.stream, entries, (done) => tell({ kind: "progress", done })) });
    case "export":
      return tell({ kind: "export", text: joinExport(order.stream, entries) });
    case "file":
      return tell({ kind: "file", file: checkFile(order.text, order.kept, (done) => tell({ kind: "progress", done })) });
  }
}

self.onmessage = (message: MessageEvent<Order>) => {
  try {
    obey(message.data);
  } catch (error) {
    tell({ kind: "failed", reason: error instanceof Error ? error.message : String(error) });
  }
};
