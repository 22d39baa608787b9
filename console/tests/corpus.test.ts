// One corpus of good and forged exports, which every verifier of exports judges alike; here it is this one. The others
// are in tests/unit/audit/test_export_vectors.py.

import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { checkFile, readKept } from "../src/verify/verify";

interface Vector {
  expected: { good?: { [stream: string]: number }; bad?: { line: number; stream?: string; seq?: number }; needs?: "rules" | "streams" | "kept" | "kits" };
  kept?: object[];
  export: string[];
}

const folder = new URL("../../tests/vectors/exports/", import.meta.url);
const vectors = readdirSync(folder).map((name): [string, Vector] => [name, JSON.parse(readFileSync(new URL(name, folder), "utf-8"))]);

function judge(vector: Vector) {
  const kept = readKept((vector.kept ?? []).map((each) => JSON.stringify(each)).join("\n"));
  return checkFile(`${vector.export.join("\n")}\n`, kept);
}

// What this verifier says that it did not check, by what it lacks.
const LEFT_OPEN = { rules: "outcomes", kits: "observations over kits", streams: "belief readings", kept: "belief readings" };

describe("the corpus of exports", () => {
  it("has files of every kind", () => {
    expect(vectors.length).toBeGreaterThan(150);
  });

  it.each(vectors)("%s", (_, vector) => {
    const { good, bad, needs } = vector.expected;
    const { streams, problem } = judge(vector);
    const broken = streams.filter((each) => each.state !== "holds");
    if (good) {
      expect({ problem, broken }).toEqual({ problem: null, broken: [] });
      expect(Object.fromEntries(streams.map((each) => [each.stream, each.events]))).toEqual(good);
      return;
    }
    const isLeftOpen = streams.some((each) => each.notChecked.some((said) => needs !== undefined && said.includes(LEFT_OPEN[needs])));
    if (needs && broken.length === 0) {
      // What this verifier does not hold, it says that it did not check.
      expect(isLeftOpen).toBe(true);
      expect(vector.expected.bad!.seq).toBeDefined();
      return;
    }
    const first = broken[0];
    if (bad!.seq === undefined && problem !== null) expect(problem.line).toBe(bad!.line);
    else expect({ stream: first?.stream, seq: first?.seq, events: first?.events }).toEqual({ stream: bad!.stream ?? first?.stream, seq: bad!.seq ?? first?.seq, events: first?.seq });
  });

  it("says of a fork whose origin is broken that it was not compared", () => {
    const [, vector] = vectors.find(([name]) => name === "fork-with-its-origin.json")!;
    const lines = vector.export.map((line, at) => (at === 4 ? line.replace('"entry":{', '"entry":{{') : line));
    const { streams, problem } = checkFile(lines.join("\n"));
    expect(problem).toBeNull();
    expect(streams.map((each) => each.state)).toEqual(["broken", "holds"]);
    expect(streams[1]!.notChecked.join()).toContain("it is not whole in this file");
  });

  it("has no quarrel with the golden export", () => {
    const golden = readFileSync(new URL("../../tests/golden/cmbs-1/export.jsonl", import.meta.url), "utf-8");
    const ends = golden.split("\n").filter((line) => line.startsWith('{"end_of"')).map((line) => JSON.parse(line) as { end_of: string; head_seq: number; head_hash: string });
    const kept = ends.map((each) => JSON.stringify({ stream_id: each.end_of, size: each.head_seq + 1, head_hash: each.head_hash }));
    const { streams, problem } = checkFile(golden, readKept(kept.join("\n")));
    expect(problem).toBeNull();
    expect(streams.filter((each) => each.state !== "holds" || each.kept !== "last")).toEqual([]);
    expect(streams.map((each) => each.stream)).toEqual(expect.arrayContaining(["kit:coin", "space:s", "names:server"]));
  });
});
