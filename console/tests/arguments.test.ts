import { describe, expect, it } from "vitest";
import { compareRows, listRows, quoteLeaf } from "../src/model/arguments";

describe("the arguments of a call", () => {
  it("have a row for each member, with its type", () => {
    const rows = listRows(JSON.parse('{"share": "50", "n": 50, "on": true, "none": null, "hosts": ["a", {"x": []}], "__proto__": {}}'));
    expect(rows.map((each) => [each.depth, each.name, each.type, each.isLeaf ? quoteLeaf(each) : each.value])).toEqual([
      [0, "share", "text", '"50"'],
      [0, "n", "number", "50"],
      [0, "on", "true or false", "true"],
      [0, "none", "null", "null"],
      [0, "hosts", "list", "2"],
      [1, "[0]", "text", '"a"'],
      [1, "[1]", "object", "1"],
      [2, "x", "list", "0"],
      [0, "__proto__", "object", "0"],
    ]);
    expect(new Set(rows.map((each) => each.path)).size).toBe(rows.length);
  });

  it("of something else than an object are one row", () => {
    expect(listRows(null)).toEqual([{ path: "", name: "", depth: 0, type: "null", value: "null", isLeaf: true }]);
  });

  it("are compared with those of another call by their place and type", () => {
    const { rows, gone } = compareRows({ a: 50, b: "x", c: { d: 1 }, e: [1] }, { a: "50", b: "x", c: 2, f: "gone" });
    expect(rows.map((each) => [each.name, each.before])).toEqual([
      ["a", '"50"'],
      ["b", null],
      ["c", "2"],
      ["d", undefined],
      ["e", undefined],
      ["[0]", undefined],
    ]);
    expect(gone.map((each) => [each.name, each.value])).toEqual([["f", "gone"]]);
    expect(compareRows({ a: 1 }, { a: { b: 2 } }).rows[0]!.before).toBe("object of 1");
  });
});
