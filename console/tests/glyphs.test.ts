import { describe, expect, it } from "vitest";
import { countGlyphs, nameGlyph, splitGlyphs } from "../src/model/glyphs";

const marks = (text: string, kind: string): string[] => splitGlyphs(text).filter((each) => each.kind === kind).map((each) => each.text);

describe("characters that are not what they look like", () => {
  it("are found where they have no ink or turn the text around", () => {
    const hidden = ["\u202e", "\u2066", "\u200b", "\u00a0", "\u3164", "\ufeff", "\u0000", "\u2028", "\u{e0041}", "\ufe0f", "\u2800", "\u00ad", "\ud800"];
    for (const each of hidden) expect(marks(`a${each}b`, "hidden"), nameGlyph(each)).toEqual([each]);
  });

  it("are found where a letter of another script stands for one of ASCII", () => {
    expect(marks("p\u0430yments", "alike")).toEqual(["\u0430"]);
    expect(marks("\u0441\u043e\u0440", "alike")).toEqual(["\u0441", "\u043e", "\u0440"]);
    expect(marks("\uff50rod", "alike")).toEqual(["\uff50"]);
    expect(marks("rm \u2212rf", "alike")).toEqual(["\u2212"]);
    expect(marks("staging\u2024example", "alike")).toEqual(["\u2024"]);
    expect(marks("prod\u0624", "alike")).toEqual(["\u0624"]);
  });

  it("are not found in words of one script, nor in accents", () => {
    for (const text of ["Fünf Äpfel", "перезапуск службы", "服务重启", "naïve café", "שלום", "10 °C"]) {
      expect(splitGlyphs(text)).toEqual([{ text, kind: "plain" }]);
    }
  });

  it("lose nothing, and count what they mark", () => {
    const text = "a\n\u202epr\u043ed\u200b \u2013";
    expect(splitGlyphs(text).map((each) => each.text).join("")).toBe(text);
    expect(marks(text, "line")).toEqual(["\n"]);
    expect(countGlyphs([text, "plain"])).toEqual({ hidden: 2, alike: 2 });
    expect(nameGlyph("\u{1f600}")).toBe("U+1F600");
  });
});
