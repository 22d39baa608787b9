import { describe, expect, it } from "vitest";
import { listHistory, nameStep, type Commit } from "../src/model/state";

function commit(seq: number, set: Commit["set"], unset: string[] = [], verb: Commit["verb"] = "PROPOSE"): Commit {
  return { seq, ts: `2026-01-01T00:00:0${seq}.000000Z`, verb, set, unset };
}

describe("the history of a state", () => {
  const history = listHistory([
    commit(0, { "constraint.goals": "{}", "fact.window": "open" }, [], "CREATE_SPACE"),
    commit(3, { "goal.restore": "checkout" }),
    commit(5, { "goal.restore": "payments" }, ["fact.window"]),
    commit(8, { "fact.window": "open" }),
  ]);

  it("says of each change what was and what is, the newest first", () => {
    expect(history.changes.map(({ seq, key, before, after }) => [seq, key, before, after])).toEqual([
      [8, "fact.window", null, "open"],
      [5, "fact.window", "open", null],
      [5, "goal.restore", "checkout", "payments"],
      [3, "goal.restore", null, "checkout"],
      [0, "fact.window", null, "open"],
    ]);
  });

  it("counts the keys of a policy and does not list them", () => {
    expect(history.policy).toEqual([{ seq: 0, ts: "2026-01-01T00:00:00.000000Z", verb: "CREATE_SPACE", keys: 1 }]);
  });

  it("has words for verbs, also for those that it does not know", () => {
    expect([nameStep("RECORD_OUTCOME"), nameStep("NEW_VERB")]).toEqual(["the answer of a tool", "new verb"]);
  });
});
