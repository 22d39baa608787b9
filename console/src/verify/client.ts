// The page's side of the verification worker.

import { AS_IT_IS, type Answered, api, readResponse } from "../api/client";
import type { Order, Report } from "./worker";
import type { FileVerdict, KeptHead, Verdict } from "./verify";

/** Whose log a stream is: of a session, or of a space. */
export function placeOf(stream: string): { session: string } | { space: string } {
  return stream.startsWith("space:") ? { space: stream.slice(6) } : { session: stream };
}

/** A page of a stream, as its bytes were hashed. */
async function readText(stream: string, cursor: string | undefined): Promise<string> {
  const place = placeOf(stream);
  const query = { cursor };
  const ask = (): Promise<Answered> => {
    if ("space" in place) {
      const params = { path: { space_id: place.space }, query };
      return api.GET("/v1/spaces/{space_id}/audit", { params, ...AS_IT_IS });
    }
    const params = { path: { session_id: place.session }, query };
    return api.GET("/v1/sessions/{session_id}/audit", { params, ...AS_IT_IS });
  };
  return (await readResponse(ask())).text();
}

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
  async load(stream: string): Promise<number> {
    let cursor: string | undefined;
    let events = 0;
    do {
      const page = await this.ask({ kind: "page", text: await readText(stream, cursor) }, "page");
      cursor = page.cursor ?? undefined;
      events = page.events;
    } while (cursor !== undefined);
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
export async function verifyStream(stream: string, progress: (done: number, of: number) => void): Promise<Verdict> {
  return withChecker(async (checker) => {
    const events = await checker.load(stream);
    return (await checker.ask({ kind: "check", stream }, "verdict", (done) => progress(done, events))).verdict;
  });
}

/** Recompute every stream of an export file, and hold it against what the reader kept. */
export async function verifyFile(text: string, kept: KeptHead[], progress: (done: number) => void): Promise<FileVerdict> {
  return withChecker(async (checker) => (await checker.ask({ kind: "file", text, kept }, "file", progress)).file);
}

export async function exportStream(stream: string): Promise<string> {
  return withChecker(async (checker) => {
    await checker.load(stream);
    return (await checker.ask({ kind: "export", stream }, "export")).text;
  });
}

