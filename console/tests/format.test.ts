import { describe, expect, it } from "vitest";
import { nameSession, splitCode } from "../src/ui/format";

describe("the name of a session", () => {
  it("is its title, or else its kit, and never its id", () => {
    expect(nameSession({ title: "Checkout is slow", kit: "checkout" })).toBe("Checkout is slow");
    expect(nameSession({ title: null, kit: "checkout" })).toBe("checkout session");
    expect(nameSession({ title: null, kit: null })).toBe("Untitled session");
  });
});

describe("a message of the server", () => {
  it("is cut at backticks, so that every second piece is code", () => {
    expect(splitCode("no session `nope`")).toEqual(["no session ", "nope", ""]);
    expect(splitCode("nothing quoted")).toEqual(["nothing quoted"]);
  });

  it("stays whole where a backtick has no other", () => {
    expect(splitCode("a ` alone")).toEqual(["a ` alone"]);
  });
});
