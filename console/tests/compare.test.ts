import { describe, expect, it } from "vitest";
import { compareTracks, listReporters, listSources, measure, tellStop, trackOf } from "../src/model/compare";
import type { AuditEvent } from "../src/model/log";

const ids = ["h0", "h1", "h2", "h3"];

function at(seq: number): string {
  return `2026-01-01T00:00:0${seq}.000000Z`;
}

function declare(universe = ids): AuditEvent {
  return { seq: 0, event_id: "e0", verb: "DECLARE_SESSION", ts: at(0), payload: { hypotheses: universe }, outcome: { universe_size: universe.length } };
}

function eliminate(seq: number, source: string, named: string[], gone: string[], agent?: string): AuditEvent {
  return { seq, event_id: `e${seq}`, verb: "ELIMINATE", ts: at(seq), payload: { source_id: source, observation_id: `o${seq}`, eliminated: named }, outcome: null, delta: { eliminated: gone }, ...(agent ? { actor: { id: agent, kind: "agent" } } : {}) };
}

function enter(seq: number): AuditEvent {
  return { seq, event_id: `e${seq}`, verb: "ENTER_OBLIGATION", ts: at(seq), payload: { obligation_id: "gate", min_total_eliminations: 1 }, outcome: null };
}

function leave(seq: number, approved: boolean): AuditEvent {
  return { seq, event_id: `e${seq}`, verb: "REQUEST_EXIT", ts: at(seq), payload: { obligation_id: "gate" }, outcome: approved ? { approved } : { approved, reason: "below_threshold" } };
}

const first = [declare(), enter(1), eliminate(2, "m", ["h0"], ["h0"], "x"), leave(3, true), eliminate(4, "t", ["h0", "h1"], ["h1"], "y")];
const second = [declare(), enter(1), eliminate(2, "m", ["h0"], ["h0"], "x"), leave(3, false), eliminate(4, "t", ["h1", "h2", "h3"], ["h1", "h2", "h3"], "y")];

describe("two sessions", () => {
  const a = trackOf({ events: first, counts: null });
  const b = trackOf({ events: second, counts: null });

  it("share a prefix, and part where an event or its verdict differs", () => {
    expect(compareTracks(a, b, "session").prefix).toBe(3);
    expect(compareTracks(a, a, "session").prefix).toBe(5);
  });

  it("share nothing where their universes differ", () => {
    const other = trackOf({ events: [declare(["h0", "z"])], counts: null });
    const found = compareTracks(a, other, "session");
    expect([found.prefix, found.shared]).toEqual([0, 1]);
    expect(found.onlyA.map((each) => [each.id, each.possible])).toEqual([["h0", true], ["h1", false]]);
  });

  it("say what only one of them ruled out, and by which event", () => {
    const found = compareTracks(a, b, "session");
    expect([found.both, found.onlyA.length]).toEqual([2, 0]);
    expect(found.onlyB.map((each) => [each.id, each.stop.seq, each.possible])).toEqual([["h2", 4, true], ["h3", 4, true]]);
  });

  it("have figures, without bits where nothing is left", () => {
    expect(measure(a)).toMatchObject({ left: 2, bits: 1, reports: 2, nothingNew: 0, bitsEach: 0.5, refused: 0, sources: 2, obligationsMet: 1, obligationsOpen: 0, milliseconds: 4000 });
    expect(measure(b)).toMatchObject({ left: 0, bits: null, bitsEach: Math.log2(4 / 3), refused: 1, obligationsMet: 0, obligationsOpen: 1 });
  });

  it("give a source one colour in both", () => {
    expect([...listSources(a, b).values()].map((each) => each.monogram)).toEqual(["·", "M", "T"]);
  });

  it("are told in words", () => {
    expect(a.stops.map(tellStop)).toEqual(["declared", "entered gate", "o2 of m, −1", "left gate", "o4 of t, −1"]);
    expect(tellStop(b.stops[3]!)).toBe("a refused exit");
  });

  it("of which ids stay on the server have counts alone", () => {
    const light = trackOf({ events: first.map(({ delta: _, ...event }) => event), counts: new Map([[2, 3], [4, 2]]) });
    expect(light.stops.map((stop) => stop.left)).toEqual([4, 4, 3, 3, 2]);
    expect(compareTracks(light, a, "session").shared).toBeNull();
  });
});

describe("two reporters of one session", () => {
  const recorded = { events: first, counts: null };

  it("are listed by source or by actor", () => {
    expect(listReporters(recorded, "source")).toEqual(["m", "t"]);
    expect(listReporters(recorded, "agent")).toEqual(["agent:x", "agent:y"]);
  });

  it("each are taken as if they alone had reported", () => {
    const m = trackOf(recorded, "source", "m");
    const t = trackOf(recorded, "agent", "agent:y");
    expect([m.left, t.left]).toEqual([3, 2]);
    const found = compareTracks(m, t, "source");
    expect([found.prefix, found.both, found.onlyA.length]).toEqual([0, 1, 0]);
    expect(found.onlyB.map((each) => each.id)).toEqual(["h1"]);
  });
});
