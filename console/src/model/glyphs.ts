// Characters that a reader cannot see, or takes for others: found in a text, so that a page can show them.

export interface Piece {
  text: string;
  /** `plain` is what it looks like; `line` ends a line; `hidden` has no ink or moves others; `alike` looks like ASCII. */
  kind: "plain" | "line" | "hidden" | "alike";
}

/** Without ink, or of an effect on others: controls, formats, separators, fillers, lone surrogates, what is unassigned. */
const HIDDEN = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u;
const NON_ASCII = /[^\x20-\x7e]/;
const LETTER = /\p{L}|\p{M}/u;
const OTHER_SCRIPT = /(?!\p{Script=Latin})[\p{L}]/u;
const ASCII_LETTER = /[A-Za-z]/;
/** Letters of other scripts, and signs, that are drawn as ASCII ones are. */
const ALIKE = new Set(
  "авекмнорстухьѕіјԛԝһԁԍҽѵӏАВЕЅІЈКМНОРСТУХԌԚԜҺҮӀζηικνορτυχγαΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϲϳօսոհցզյքԱՍՕԼᎪᎬᎢᎡᎥᏒᏚᏞᏟᏢᏦᏴꓐꓑꓒꓓꓔꓖꓗꓙꓚꓝꓟꓠꓡꓢꓣꓤꓥꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴıȷɑɡɩʟɢɴʀƽƨǀǃᴏᴄᴠᴡᴢ" +
    "‐‑‒–—―−﹘˗۔․‚ꓸ٫‘’‛ʹʻʼʽˈ՚“”‟″∕⁄⧸∖⧵∣∶꞉˸﹕։׃；⁎∗‹›❬❭〈〉˂˃∼˜ⅼⅠⅤⅩ٠۰०০੦૦௦๐໐၀",
);

function isAlikeAlone(character: string): boolean {
  if (ALIKE.has(character)) return true;
  const folded = character.normalize("NFKC");
  return folded !== character && folded.length > 0 && !NON_ASCII.test(folded);
}

/** Which letters of a word are not what they look like: of a word in another script, those that could be ASCII only
 * where all of them could. */
function markWord(word: string[]): boolean[] {
  const alike = word.map(isAlikeAlone);
  const mixes = word.some((each) => ASCII_LETTER.test(each));
  if (mixes) return word.map((each, at) => alike[at]! || OTHER_SCRIPT.test(each));
  const isWhole = word.every((each, at) => alike[at] || !LETTER.test(each));
  return isWhole ? alike : word.map((each) => !OTHER_SCRIPT.test(each) && isAlikeAlone(each));
}

/** A text in pieces. Joined again they are the text. */
export function splitGlyphs(text: string): Piece[] {
  if (!NON_ASCII.test(text)) return text === "" ? [] : [{ text, kind: "plain" }];
  const pieces: Piece[] = [];
  const add = (character: string, kind: Piece["kind"]): void => {
    const last = pieces.at(-1);
    if (last?.kind === kind && kind === "plain") last.text += character;
    else pieces.push({ text: character, kind });
  };
  let word: string[] = [];
  const flush = (): void => {
    const marks = markWord(word);
    word.forEach((each, at) => add(each, marks[at] ? "alike" : "plain"));
    word = [];
  };
  for (const character of text) {
    if (character !== " " && HIDDEN.test(character)) {
      flush();
      add(character, character === "\n" ? "line" : "hidden");
    } else if (LETTER.test(character)) word.push(character);
    else {
      flush();
      add(character, isAlikeAlone(character) ? "alike" : "plain");
    }
  }
  flush();
  return pieces;
}

/** A character by its number, as in U+202E. */
export function nameGlyph(character: string): string {
  return `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** How many characters of some texts are marked. */
export function countGlyphs(texts: Iterable<string>): { hidden: number; alike: number } {
  const found = { hidden: 0, alike: 0 };
  for (const text of texts) {
    for (const { kind } of splitGlyphs(text)) {
      if (kind === "hidden" || kind === "alike") found[kind] += 1;
    }
  }
  return found;
}
