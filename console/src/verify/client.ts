// The page's side of the verification worker.

import { send } from "../api/client";
import type { Order, Report } from "./worker";
import type { Verdict } from "./verify";

class Checker {
  private readonly worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });

  async ask<Kind extends Report["kind"]>(order: Order, wanted: Kind, progress?: (done: number) => void): Promise<Extract<Report, { kind: Kind }>> {
    return new Promise((resolve, reject) => {
      this.worker.onmessage = (message: MessageEvent<Report>) => {
        const report = message.data;
        if (report.kind === "progress") progress?.(report.done);
        else if (report.kind === "failed") reject(new Error(report.reason));
        else if (report.kind === wanted) resolve(report as Extract<Report, { kind: Kind }>);
      };
      this.worker.onerror = (event) => reject(new Error(event.message || "the worker did not start"));
      this.worker.postMessage(order);
    });
  }

  /** All entries of a stream, as they were hashed. */
  async load(path: string): Promise<number> {
    let cursor: string | null = null;
    let events = 0;
    do {
      const text: string = await (await send(path, { query: { cursor } })).text();
      const page = await this.ask({ kind: "page", text }, "page");
      cursor = page.cursor;
      events = page.events;
    } while (cursor !== null);
    return events;
  }

  close(): void {
    this.worker.terminate();
  }
}

async function withChecker<T>(use: (checker: Checker) => Promise<T>): Promise<T> {
  const checker = new Checker();
  try {
    return await use(checker);
  } finally {
    checker.close();
  }
}

/** Recompute a stream of the server from its entries. */
export async function verifyStream(stream: string, path: string, progress: (done: number, of: number) => void): Promise<Verdict> {
  return withChecker(async (checker) => {
    const events = await checker.load(path);
    const report = await checker.ask({ kind: "check", stream }, "verdicts", (done) => progress(done, events));
    return report.verdicts[0]!;
  });
}

/** Recompute every stream of an export file. */
export async function verifyFile(text: string, progress: (done: number) => void): Promise<Verdict[]> {
  return withChecker(async (checker) => (await checker.ask({ kind: "file", text }, "verdicts", progress)).verdicts);
}

export async function exportStream(stream: string, path: string): Promise<string> {
  return withChecker(async (checker) => {
    await checker.load(path);
    return (await checker.ask({ kind: "export", stream }, "export")).text;
  });
}

