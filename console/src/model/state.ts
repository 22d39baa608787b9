// The state of a space with its history: each commit as lines of what was and what is.

import type { Schemas } from "../api/client";

export type Commit = Pick<Schemas["CommitItem"], "seq" | "ts" | "verb" | "set" | "unset">;

export interface Change extends Pick<Commit, "seq" | "ts" | "verb"> {
  key: string;
  /** Null where it was not set. */
  before: string | null;
  /** Null where it was taken away. */
  after: string | null;
}

/** A commit that changed the policy: how many of its keys. */
export interface PolicyStep extends Pick<Commit, "seq" | "ts" | "verb"> {
  keys: number;
}

export interface History {
  /** The newest first. */
  changes: Change[];
  policy: PolicyStep[];
}

export function isPolicyKey(key: string): boolean {
  return key.startsWith("constraint.") || key.startsWith("policy.");
}

/** What each commit changed, from all commits, the oldest first. The rules of a policy are counted, and not listed. */
export function listHistory(commits: Commit[]): History {
  const values = new Map<string, string>();
  const changes: Change[] = [];
  const policy: PolicyStep[] = [];
  for (const { seq, ts, verb, set, unset } of commits) {
    const keys = [...Object.keys(set), ...unset];
    const rules = keys.filter(isPolicyKey).length;
    if (rules > 0) policy.push({ seq, ts, verb, keys: rules });
    for (const key of keys) {
      if (isPolicyKey(key)) continue;
      const after = set[key] ?? null;
      changes.push({ seq, ts, verb, key, before: values.get(key) ?? null, after });
      if (after === null) values.delete(key);
      else values.set(key, after);
    }
  }
  return { changes: changes.reverse(), policy: policy.reverse() };
}

/** What wrote a commit, in words. */
export function nameStep(verb: string): string {
  return STEPS[verb] ?? verb.toLowerCase().replaceAll("_", " ");
}

const STEPS: Record<string, string> = {
  CREATE_SPACE: "the space began",
  PROPOSE: "a proposal",
  WAKE: "a proposal that waited",
  APPROVE: "an approval",
  RECORD_OUTCOME: "the answer of a tool",
  PROPOSE_POLICY: "a policy file",
  SETTLE_POLICY: "a policy file, authorised",
};
