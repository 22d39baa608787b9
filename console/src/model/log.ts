// A session as the page holds it: one column a figure, so that 36,000 events stay small, and a state at any event.
// Every figure follows from the events; nothing is guessed.

import type { Schemas } from "../api/client";

/** What any of several types has: each member, where it is there, as in the type that has it. */
type AnyOf<Union, Names extends PropertyKey = Union extends unknown ? keyof Union : never> = {
  [Name in Names]?: Union extends unknown ? (Name extends keyof Union ? Union[Name] : never) : never;
};

type Recorded = Schemas["AuditEvent"];

/** An event as far as it is read here: those of a large universe come without ids, and without most hashes. */
export interface AuditEvent extends Pick<Recorded, "seq" | "event_id" | "verb" | "ts"> {
  event_hash?: Recorded["event_hash"];
  delta?: Recorded["delta"];
  payload: AnyOf<Recorded["payload"]>;
  outcome: AnyOf<NonNullable<Recorded["outcome"]>> | null;
  actor?: Pick<Schemas["RecordedActor"], "id" | "kind">;
}

export type Kind = "declare" | "eliminate" | "enter" | "exit" | "conclude" | "terminate" | "update";

const KINDS: Record<string, Kind> = {
  DECLARE_SESSION: "declare",
  ELIMINATE: "eliminate",
  ENTER_OBLIGATION: "enter",
  REQUEST_EXIT: "exit",
  DECLARE_CONCLUSION: "conclude",
  REQUEST_TERMINATION: "terminate",
  UPDATE_CASE: "update",
};

export const UNNAMED = "caller not named";

export interface Source {
  id: string;
  name: string;
  monogram: string;
  /** 1 to 6 in order of the first event; 0 is the grey that later ones share. */
  colour: number;
  /** Where this source alone would have left the universe, as steps [seq, left]; empty where ids are not known here. */
  alone: [number, number][];
}

export interface Obligation {
  id: string;
  entered: number;
  left: number | null;
  needed: number;
  /** Causes left when it was entered; it can be left at this number less `needed`. */
  startedAt: number;
}

export interface Refusal {
  seq: number;
  what: string;
  id: string;
  reason: string;
  source: number;
}

/** A list of whole numbers that grows by doubling. */
class Column {
  private numbers = new Int32Array(256);
  length = 0;

  push(value: number): void {
    if (this.length === this.numbers.length) {
      const larger = new Int32Array(this.length * 2);
      larger.set(this.numbers);
      this.numbers = larger;
    }
    this.numbers[this.length++] = value;
  }

  at(position: number): number {
    return this.numbers[position] ?? 0;
  }

  set(position: number, value: number): void {
    this.numbers[position] = value;
  }
}

export class SessionLog {
  readonly left = new Column();
  readonly removed = new Column();
  readonly source = new Column();
  private readonly seconds: number[] = [];
  readonly kinds: Kind[] = [];
  readonly refused: boolean[] = [];
  /** What an event is about: an observation, an obligation, a conclusion. */
  readonly subjects: string[] = [];
  readonly eventIds: string[] = [];
  readonly sources: Source[] = [];
  readonly obligations: Obligation[] = [];
  readonly refusals: Refusal[] = [];
  readonly conclusions: { seq: number; id: string }[] = [];
  universe: string[] = [];
  universeSize = 0;
  attributes: Record<string, Record<string, unknown>> = {};
  title: string | null = null;
  /** Whether a kit or a provider of the server knows its probes. */
  hasKit = false;
  ontology: Partial<Schemas["OntologyBundle"]> = {};
  provider: Schemas["ProviderReference"] | null = null;
  origin: Schemas["SessionOrigin"] | null = null;
  endedAt: number | null = null;
  private index = new Map<string, number>();
  private goneAt = new Int32Array(0);
  private readonly named = new Map<number, { seen: Uint8Array; count: number }>();
  private readonly sourceIndex = new Map<string, number>();

  /** `withIds` is false for universes whose ids stay on the server. */
  constructor(readonly withIds: boolean) {}

  get size(): number {
    return this.left.length;
  }

  get head(): number {
    return this.size - 1;
  }

  /** When an event was recorded, in milliseconds since the epoch. */
  time(seq: number): number {
    return (this.seconds[seq] ?? 0) * 1000;
  }

  /** Take the next event in. `counted` is what it left, where the event comes without its ids. */
  append(event: AuditEvent, counted?: number): void {
    if (event.seq !== this.size) throw new Error(`event ${event.seq} does not follow event ${this.head}`);
    const kind = kindOf(event);
    const before = this.size === 0 ? 0 : this.left.at(this.head);
    const source = this.findSource(event);
    if (kind === "declare") this.declare(event);
    const removed = event.delta?.eliminated.length ?? (counted === undefined ? 0 : before - counted);
    const left = kind === "declare" ? this.universeSize : before - removed;
    this.seconds.push(Date.parse(event.ts) / 1000);
    this.left.push(left);
    this.removed.push(kind === "declare" ? 0 : removed);
    this.source.push(source);
    this.kinds.push(kind);
    this.eventIds.push(event.event_id);
    this.subjects.push(subjectOf(event, kind));
    const refused = isRefused(event);
    this.refused.push(refused);
    this.note(event, kind, refused, source, left);
    if (this.withIds && kind === "eliminate") this.takeIds(event, source);
  }

  private declare(event: AuditEvent): void {
    const { payload } = event;
    this.universeSize = event.outcome?.universe_size ?? 0;
    this.title = payload.title ?? null;
    this.ontology = payload.ontology ?? {};
    this.provider = payload.provider ?? null;
    this.hasKit = this.provider !== null || this.ontology.causal_graph_ref?.startsWith("kit:") === true;
    this.origin = payload.origin ?? null;
    if (!this.withIds) return;
    this.attributes = payload.hypothesis_attributes ?? {};
    this.universe = payload.hypotheses ?? [];
    this.index = new Map(this.universe.map((id, at) => [id, at]));
    this.goneAt = new Int32Array(this.universe.length).fill(-1);
  }

  private note(event: AuditEvent, kind: Kind, refused: boolean, source: number, left: number): void {
    const subject = this.subjects[event.seq]!;
    if (refused) {
      const reason = event.outcome?.reason ?? "";
      const what = kind === "exit" ? "exit" : kind === "conclude" ? "conclude" : "terminate";
      this.refusals.push({ seq: event.seq, what, id: subject, reason, source });
    } else if (kind === "enter") {
      const needed = event.payload.min_total_eliminations ?? 0;
      this.obligations.push({ id: subject, entered: event.seq, left: null, needed, startedAt: left });
    } else if (kind === "exit") {
      const obligation = this.obligations.find((each) => each.id === subject);
      if (obligation) obligation.left = event.seq;
    } else if (kind === "conclude") this.conclusions.push({ seq: event.seq, id: subject });
    else if (kind === "terminate") this.endedAt = event.seq;
    else if (kind === "update") {
      if (event.payload.title !== undefined) this.title = event.payload.title;
      const lifted = this.obligations.find((each) => each.id === event.payload.lift_obligation);
      if (lifted) lifted.left = event.seq;
    }
  }

  private takeIds(event: AuditEvent, source: number): void {
    for (const id of event.delta?.eliminated ?? []) {
      const at = this.index.get(id);
      if (at !== undefined) this.goneAt[at] = event.seq;
    }
    const named = this.named.get(source) ?? { seen: new Uint8Array(this.universe.length), count: 0 };
    this.named.set(source, named);
    for (const id of event.payload.eliminated ?? []) {
      const at = this.index.get(id);
      if (at !== undefined && named.seen[at] === 0) {
        named.seen[at] = 1;
        named.count += 1;
      }
    }
    const steps = this.sources[source]!.alone;
    const left = this.universeSize - named.count;
    if ((steps[steps.length - 1]?.[1] ?? this.universeSize) !== left) steps.push([event.seq, left]);
  }

  private findSource(event: AuditEvent): number {
    const id = sourceOf(event);
    const known = this.sourceIndex.get(id);
    if (known !== undefined) return known;
    const position = this.sources.length;
    this.sources.push(nextSource(id, this.sources));
    this.sourceIndex.set(id, position);
    return position;
  }

  /** How many each source had ruled out first, up to and with an event. */
  countBySource(at: number): number[] {
    const counts = this.sources.map(() => 0);
    for (let seq = 0; seq <= at; seq++) {
      if (this.removed.at(seq) > 0) counts[this.source.at(seq)]! += this.removed.at(seq);
    }
    return counts;
  }

  /** Whether the universe has this id, as far as it is known here. */
  has(id: string): boolean {
    return !this.withIds || this.index.has(id);
  }

  /** The event that ruled an id out; -1 where it survives, or is not known here. */
  whenGone(id: string): number {
    const at = this.index.get(id);
    return at === undefined ? -1 : (this.goneAt[at] ?? -1);
  }

  /** Obligations as they stood at an event: open ones first. */
  openObligations(at: number): Obligation[] {
    return this.obligations.filter((each) => each.entered <= at && (each.left === null || each.left > at));
  }

  endedBy(at: number): boolean {
    return this.endedAt !== null && this.endedAt <= at;
  }
}

/** Who an event is of: the source that it names, else its actor. */
export function sourceOf(event: AuditEvent): string {
  return event.payload.source_id ?? event.actor?.id ?? UNNAMED;
}

/** A source with the next colour, and a letter that no other has. */
export function nextSource(id: string, others: Source[]): Source {
  const coloured = others.filter((each) => each.colour > 0).length;
  const colour = id === UNNAMED ? 0 : coloured < 6 ? coloured + 1 : 0;
  const name = nameOf(id);
  const taken = new Set(others.map((each) => each.monogram));
  return { id, name, monogram: id === UNNAMED ? "·" : chooseMonogram(name, taken), colour, alone: [] };
}

export function isRefused(event: AuditEvent): boolean {
  return event.outcome?.approved === false || event.outcome?.accepted === false;
}

export function kindOf(event: AuditEvent): Kind {
  return KINDS[event.verb] ?? "eliminate";
}

export function subjectOf(event: AuditEvent, kind: Kind): string {
  const member = kind === "eliminate" ? "observation_id" : kind === "conclude" ? "conclusion_id" : "obligation_id";
  return event.payload[member] ?? "";
}

/** The part of an id that tells sources apart: `agent://metrics` is `metrics`. */
export function nameOf(id: string): string {
  return id.replace(/^[a-z]+:\/\//, "") || id;
}

function chooseMonogram(name: string, taken: Set<string>): string {
  const letters = [...name.toUpperCase()].filter((each) => /[\p{L}\p{N}]/u.test(each));
  for (const letter of letters) if (!taken.has(letter)) return letter;
  return letters[0] ?? "?";
}

export function bitsOf(count: number): number {
  return count > 1 ? Math.log2(count) : 0;
}
