import { describe, expect, it } from "vitest";
import { layOut, moveTo, seqAt, spread, zoom } from "../src/model/funnel";
import { SessionLog, type AuditEvent } from "../src/model/log";

const ts = "2026-01-01T00:00:00.000000Z";

function declare(ids: string[]): AuditEvent {
  return { seq: 0, event_id: "e0", verb: "DECLARE_SESSION", ts, payload: { hypotheses: ids }, outcome: { universe_size: ids.length }, delta: { eliminated: [] } };
}

function eliminate(seq: number, source: string, named: string[], gone: string[]): AuditEvent {
  return { seq, event_id: `e${seq}`, verb: "ELIMINATE", ts, payload: { source_id: source, observation_id: `o${seq}`, eliminated: named }, outcome: null, delta: { eliminated: gone } };
}

function refusal(seq: number): AuditEvent {
  return { seq, event_id: `e${seq}`, verb: "REQUEST_TERMINATION", ts, payload: {}, outcome: { approved: false, reason: "not_singleton" } };
}

function enter(seq: number, id: string, needed: number): AuditEvent {
  return { seq, event_id: `e${seq}`, verb: "ENTER_OBLIGATION", ts, payload: { obligation_id: id, min_total_eliminations: needed }, outcome: null };
}

function exit(seq: number, id: string): AuditEvent {
  return { seq, event_id: `e${seq}`, verb: "REQUEST_EXIT", ts, payload: { obligation_id: id }, outcome: { approved: true } };
}

const ids = Array.from({ length: 8 }, (_, at) => `h${at}`);

function build(): SessionLog {
  const log = new SessionLog(true);
  log.append(declare(ids));
  log.append(eliminate(1, "agent://metrics", ["h0", "h1"], ["h0", "h1"]));
  log.append(eliminate(2, "agent://traces", ["h1", "h2"], ["h2"]));
  log.append(refusal(3));
  log.append(eliminate(4, "agent://traces", ["h1"], []));
  return log;
}

function buildLong(): SessionLog {
  const log = new SessionLog(true);
  const many = Array.from({ length: 10_000 }, (_, at) => `h${String(at).padStart(5, "0")}`);
  log.append(declare(many));
  for (let seq = 1; seq < 10_000; seq++) log.append(seq % 100 === 0 ? refusal(seq) : eliminate(seq, `s${seq % 3}`, [many[seq]!], [many[seq]!]));
  return log;
}

describe("a session log", () => {
  it("holds what is left after each event, and who ruled out what first", () => {
    const log = build();
    expect([0, 1, 2, 3, 4].map((seq) => log.left.at(seq))).toEqual([8, 6, 5, 5, 5]);
    expect(log.countBySource(1)).toEqual([0, 2, 0]);
    expect(log.countBySource(4)).toEqual([0, 2, 1]);
    expect(log.whenGone("h2")).toBe(2);
    expect(log.whenGone("h7")).toBe(-1);
  });

  it("says where a source alone would have left the universe", () => {
    expect(build().sources[2]!.alone).toEqual([[2, 6]]);
  });

  it("refuses an event that does not follow", () => {
    expect(() => build().append(refusal(9))).toThrow("does not follow");
  });

  it("gives each source a letter of its own", () => {
    const log = build();
    expect(log.sources.map((each) => each.monogram)).toEqual(["·", "M", "T"]);
    expect(log.sources.map((each) => each.colour)).toEqual([0, 1, 2]);
  });
});

describe("the funnel", () => {
  it("puts each drop above the event that made it", () => {
    const funnel = layOut(build(), 1000);
    const { x0, x1, top, height } = funnel.frame;
    expect(funnel.drops.map((each) => each.seq)).toEqual([1, 2]);
    expect(funnel.drops[0]!.x).toBeCloseTo(x0 + (x1 - x0) / 4);
    expect(funnel.drops[0]!.from).toBeCloseTo(top);
    expect(funnel.drops[0]!.to).toBeCloseTo(top + height * (1 - Math.log2(6) / 3));
    expect(seqAt(funnel.frame, funnel.drops[0]!.x + 2, funnel.extent)).toBe(1);
  });

  it("shows refusals and reports that brought nothing", () => {
    expect(layOut(build(), 1000).marks.map((each) => [each.seq, each.shape])).toEqual([[3, "refused"], [4, "nothing"]]);
  });

  it("has a row for zero only where something came to nothing", () => {
    const log = build();
    expect(layOut(log, 1000).frame.zeroY).toBeNull();
    log.append(eliminate(5, "agent://metrics", ids, ["h3", "h4", "h5", "h6", "h7"]));
    const funnel = layOut(log, 1000);
    expect(funnel.frame.zeroY).not.toBeNull();
    expect(funnel.marks.at(-1)).toMatchObject({ seq: 5, shape: "contradiction" });
  });

  it("bins ten thousand events by column and loses no refusal's column", () => {
    const funnel = layOut(buildLong(), 1200);
    expect(funnel.binned).toBe(true);
    expect(funnel.drops.length).toBeLessThan(1200);
    expect(funnel.marks.filter((each) => each.shape === "refused")).toHaveLength(99);
  });

  it("draws some of ten thousand events one by one, from what was left before them", () => {
    const log = buildLong();
    const funnel = layOut(log, 1200, [], { first: 5000, last: 5040 });
    const { x0, x1 } = funnel.frame;
    expect(funnel.binned).toBe(false);
    expect(funnel.drops.map((each) => each.seq)).toEqual(Array.from({ length: 40 }, (_, at) => 5001 + at));
    expect([funnel.drops[0]!.x, funnel.drops.at(-1)!.x]).toEqual([x0 + (x1 - x0) / 40, x1]);
    expect(funnel.line.startsWith(`M${x0} ${Math.round(10 * (funnel.drops[0]!.from)) / 10}H`)).toBe(true);
    expect(funnel.marks.map((each) => each.seq)).toEqual([5000]);
    expect(funnel.labels[0]!.seq).toBeGreaterThanOrEqual(5000);
    expect(funnel.alone.every((each) => /^M160 \d/.test(each.path) && each.path.endsWith(`H${x1}`))).toBe(true);
    expect(seqAt(funnel.frame, x1, funnel.extent)).toBe(5040);
  });

  it("is drawn closer and further around an event, and whole in the end", () => {
    expect(zoom(null, 5000, 9999, 0.5)).toEqual({ first: 2500, last: 7500 });
    expect(zoom({ first: 2500, last: 7500 }, 7500, 9999, 0.5)).toEqual({ first: 6250, last: 8750 });
    expect(zoom({ first: 100, last: 110 }, 9999, 9999, 0.5)).toEqual({ first: 9991, last: 9999 });
    expect(zoom({ first: 2500, last: 7500 }, 0, 9999, 2)).toBeNull();
    expect(zoom(null, 3, 5, 0.5)).toBeNull();
    expect([moveTo({ first: 10, last: 20 }, 15), moveTo({ first: 10, last: 20 }, 9), moveTo({ first: 10, last: 20 }, 30)]).toEqual([{ first: 10, last: 20 }, { first: 9, last: 19 }, { first: 20, last: 30 }]);
  });

  it("has a tape for each obligation, from entry to exit, at what may be left then", () => {
    const log = build();
    log.append(enter(5, "look", 3));
    log.append(eliminate(6, "agent://traces", ["h3", "h4", "h5"], ["h3", "h4", "h5"]));
    log.append(exit(7, "look"));
    log.append(enter(8, "too-much", 9));
    const funnel = layOut(log, 1000);
    expect(funnel.tapes.map((each) => [each.id, each.open, each.target])).toEqual([["look", false, 2], ["too-much", true, -7]]);
    expect([funnel.tapes[0]!.x0, funnel.tapes[0]!.x1]).toEqual([funnel.x(5), funnel.x(7)]);
    // One that cannot be met lies on the row of zero.
    expect(funnel.tapes[1]!.y).toBe(funnel.frame.zeroY);
    const part = layOut(log, 1000, [], { first: 6, last: 7 });
    expect(part.tapes.map((each) => [each.id, each.x0, each.x1])).toEqual([["look", part.frame.x0, part.frame.x1]]);
  });

  it("draws a strategy's k-th probe at the k-th report, and none beyond the last", () => {
    const log = build();
    const funnel = layOut(log, 1000, [{ name: "greedy", bits: [3, 2, 1, 0.5, 0] }, { name: "optimal", bits: [3, 0] }]);
    const { x0, x1, top, height } = funnel.frame;
    const round = (value: number): number => Math.round(value * 10) / 10;
    const at = (seq: number, bits: number): string => `${round(x0 + ((x1 - x0) * seq) / 4)} ${round(top + height * (1 - bits / 3))}`;
    expect(funnel.ghosts).toEqual([
      { name: "greedy", path: `M${at(0, 3)}L${at(1, 2)}L${at(2, 1)}L${at(4, 0.5)}` },
      { name: "optimal", path: `M${at(0, 3)}L${at(1, 0)}` },
    ]);
    // Of a part: from where the strategy stands at its first event.
    const part = layOut(log, 1000, [{ name: "greedy", bits: [3, 2, 1, 0.5, 0] }], { first: 2, last: 4 });
    expect(part.ghosts[0]!.path).toBe(`M${at(0, 1)}L${at(4, 0.5)}`);
  });

  it("pushes labels apart and keeps their order", () => {
    const places = spread([10, 12, 11, 50], 10, 0, 100);
    expect(places).toEqual([10, 30, 20, 50]);
    expect(Math.max(...spread([95, 96, 97], 10, 0, 100))).toBeLessThanOrEqual(100);
  });
});
