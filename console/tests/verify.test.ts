import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { decodeFile, splitAnswer, splitExport, joinExport } from "../src/verify/reading";
import { checkFile, checkStream, readKept } from "../src/verify/verify";
import { canonicalize, comparePoints } from "../src/verify/canonical";

// The worked example of the document that the verifier was written from.
const page = readFileSync(new URL("../../docs/reference/export.md", import.meta.url), "utf-8");
const file = page.split('EXPORT = """\n')[1]!.split('"""')[0]!;

function check(text: string) {
  const [stream] = [...splitExport(text)];
  return checkStream(stream!.name, stream!.entries);
}

describe("an export", () => {
  it("holds as it was written", () => {
    const verdict = check(file);
    expect(verdict).toMatchObject({ state: "holds", events: 4, commitments: 8, decided: true, left: 2 });
  });

  it("is read byte for byte: UTF-8 alone, and without a byte order mark", () => {
    const bytes = new TextEncoder().encode(file);
    expect(decodeFile(bytes.buffer)).toBe(file);
    const marked = decodeFile(new Uint8Array([0xef, 0xbb, 0xbf, ...bytes]).buffer);
    expect(checkFile(marked)).toMatchObject({ streams: [], problem: { line: 1 } });
    expect(() => decodeFile(new Uint8Array([...bytes, 0xff]).buffer)).toThrow("not UTF-8");
  });

  it.each([["null"], ["0"], ['""'], ["[]"], ["{}"]])("is refused where a refused conclusion is tied by %s", async (tie) => {
    const { hashLeaf, encode, toHex } = await import("../src/verify/merkle");
    const vector = JSON.parse(readFileSync(new URL("../../tests/vectors/exports/good-session.json", import.meta.url), "utf-8")) as { export: string[] };
    const [stream] = [...splitExport(vector.export.join("\n"))];
    const forged = stream!.entries.slice(0, 3);
    const text = forged[2]!.text.replace('"context":null}', `"context":null,"tied_by":${tie}}`);
    expect(text).not.toBe(forged[2]!.text);
    forged[2] = { text, hash: toHex(hashLeaf(encode(text))) };
    expect(checkStream(stream!.name, forged)).toMatchObject({ state: "broken", seq: 2, reason: "payload.tied_by is not 64 lower-case hexadecimal digits" });
  });

  it("is refused where a probe has a reading that is null", async () => {
    const { hashLeaf, encode, toHex } = await import("../src/verify/merkle");
    const vector = JSON.parse(readFileSync(new URL("../../tests/vectors/exports/good-observed.json", import.meta.url), "utf-8")) as { export: string[] };
    const [stream] = [...splitExport(vector.export.join("\n"))];
    const text = stream!.entries[1]!.text.replace(/"reading":\{[^}]*\}/, '"reading":null');
    expect(text).not.toBe(stream!.entries[1]!.text);
    const forged = [stream!.entries[0]!, { text, hash: toHex(hashLeaf(encode(text))) }];
    expect(checkStream(stream!.name, forged)).toMatchObject({ state: "broken", seq: 1, reason: "payload.probe.reading is not an object" });
  });

  it("is written again byte for byte", () => {
    const [stream] = [...splitExport(file)];
    expect(joinExport(stream!.name, stream!.entries)).toBe(file);
  });

  it("is split the same way out of an answer of /audit", () => {
    const [stream] = [...splitExport(file)];
    const events = stream!.entries.map((each) => `${each.text.slice(0, -1)},"event_hash":"${each.hash}"}`);
    const answer = splitAnswer(`{"events":[${events.join(",")}],"next_cursor":"7"}`);
    expect(answer).toEqual({ entries: stream!.entries, cursor: "7" });
    expect(splitAnswer('{"events":[]}')).toEqual({ entries: [], cursor: null });
  });

  it.each([
    ["an id that was ruled out", '"eliminated":["a","z"]', '"eliminated":["b","z"]', 1, "hash does not follow from the bytes"],
    ["a hash", '"event_hash":"197c', '"event_hash":"1970', 1, "hash does not follow from the bytes"],
    ["white space", '"seq":2', '"seq": 2', 2, "bytes are not canonical"],
    ["a time", "00:00:00.000003Z", "00:00:00.000004Z", 3, "hash does not follow from the bytes"],
  ])("names the first bad event where %s was changed", (_, from, to, seq, reason) => {
    expect(file).toContain(from);
    expect(check(file.replace(from, to))).toMatchObject({ state: "broken", seq, reason, events: seq });
  });

  it("is not believed where one that forges hashes changed a decision", async () => {
    const { hashLeaf, encode, toHex } = await import("../src/verify/merkle");
    const [stream] = [...splitExport(file)];
    const entries = structuredClone(stream!.entries);
    entries[3]!.text = entries[3]!.text.replace('"approved":false,"reason":"obligation_active"', '"approved":true,"reason":"approved"');
    entries[3]!.hash = toHex(hashLeaf(encode(entries[3]!.text)));
    expect(checkStream(stream!.name, entries)).toMatchObject({ state: "broken", seq: 3, reason: "decision does not follow" });
  });

  it.each([
    ["earlier", "cmbs-export/1", "an export of an earlier format, which this software does not read"],
    ["newer", "cmbs/2/export", "not an export: its first line does not say cmbs/1/export"],
  ])("of an %s format is refused by its first line", (_, name, said) => {
    expect(checkFile(file.replace("cmbs/1/export", name))).toEqual({ streams: [], problem: { line: 1, reason: said } });
  });

  it("may say which development version wrote it", () => {
    expect(check(file.replace('"left_out"', '"fingerprint":"others","left_out"'))).toMatchObject({ state: "holds" });
  });

  it.each([["another", '"format":"cmbs/9"'], ["no", '"v":3']])("of %s format is neither good nor bad", (_, written) => {
    expect(check(file.replaceAll('"format":"cmbs/1"', written))).toMatchObject({ state: "unknown", events: 0 });
  });
});

describe("canonical JSON", () => {
  it("sorts keys by UTF-16 and prints numbers as ECMAScript does", () => {
    expect(canonicalize({ "\u{1F600}": 1e21, "\uFFFD": -0.5, a: [null, true, "\u0007"] })).toBe('{"a":[null,true,"\\u0007"],"\u{1F600}":1e+21,"\uFFFD":-0.5}');
  });

  it("compares ids by code point, not by UTF-16", () => {
    expect(comparePoints("\uFFFD", "\u{1F600}")).toBeLessThan(0);
    expect(comparePoints("a", "ab")).toBeLessThan(0);
    expect(comparePoints("b", "a")).toBeGreaterThan(0);
  });
});

describe("heads that a reader kept", () => {
  const [stream] = [...splitExport(file)];
  const hashes = stream!.entries.map((each) => each.hash);
  const heads = (seq: number, hash: string) => JSON.stringify({ stream_id: stream!.name, size: seq + 1, head_hash: hash });

  it.each([
    ["no head", "", { state: "holds", kept: "none" }],
    ["the hash of the last event", hashes[3]!, { state: "holds", kept: "last" }],
    ["the hash of an event before", hashes[1]!, { state: "holds", kept: "earlier" }],
    ["a line of cmbs heads", `{"format":"cmbs/1/heads"}\n${heads(3, hashes[3]!)}`, { state: "holds", kept: "last" }],
    ["another event", heads(2, hashes[3]!), { state: "broken", seq: 2, events: 2, reason: "another event than the head that was kept" }],
    ["events that are missing", heads(7, hashes[3]!), { state: "broken", seq: 4, events: 4 }],
  ])("are held against the file: %s", (_, kept, said) => {
    const { streams, problem } = checkFile(file, readKept(kept));
    expect(problem).toBeNull();
    expect(streams[0]).toMatchObject(said);
  });

  it("of nothing in the file are a problem of the file", () => {
    expect(checkFile(file, readKept("0".repeat(64))).problem?.reason).toContain("in none of its streams");
    const other = JSON.stringify({ stream_id: "gone", size: 1, head_hash: "0".repeat(64) });
    expect(checkFile(file, readKept(other)).problem?.reason).toContain("gone, of which a head was kept, is not in the file");
    for (const text of ["nonsense", '{"stream_id":1}', '{"stream_id":"s","size":0,"head_hash":"00"}']) expect(() => readKept(text)).toThrow("64 hexadecimal digits");
  });
});
