// What went wrong, as the API describes it. What a page reads in the details of an error, it reads here, by its code.

import type { components } from "./schema";

type ErrorResponse = components["schemas"]["ErrorResponse"];

/** What this page finds by itself: no answer, one that is not of the API, or more than it can show. */
interface Found {
  code: "NETWORK" | "EVENT_MISSING" | "TOO_LARGE_HERE" | `HTTP_${number}`;
  message: string;
  details: { next: string } | null;
}

/** What there is instead of an answer; `error.code` says which `error.details` it has. */
export class ApiError extends Error {
  constructor(
    readonly error: ErrorResponse["error"] | Found,
    /** Of HTTP; 0 where nothing was answered, or nothing was wrong with what was. */
    readonly status = 0,
  ) {
    super(error.message);
  }
}

/** A step that a space did not grant. */
export class StepRefused extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly next: string | null,
  ) {
    super(message);
  }
}

/** A refusal of the server; what a proxy answers has another form, or none. */
export function readError({ status, statusText }: Response, body: ErrorResponse | undefined): ApiError {
  const message = statusText || "the answer is not one of the API";
  return new ApiError(body?.error ?? { code: `HTTP_${status}`, message, details: null }, status);
}

export function hasStatus(problem: unknown, ...statuses: number[]): boolean {
  return problem instanceof ApiError && statuses.includes(problem.status);
}

/** Whether the same request would be refused again, as far as its status says. */
export function isRefused(problem: unknown): boolean {
  return problem instanceof ApiError && problem.status >= 400 && problem.status < 500;
}

/** The code of what went wrong, with the status of the answer; null where it has none. */
export function findCode(problem: unknown): string | null {
  if (problem instanceof StepRefused) return problem.code;
  if (!(problem instanceof ApiError)) return null;
  return problem.status > 0 ? `${problem.error.code} · ${problem.status}` : problem.error.code;
}

/** What to do about it, in a sentence; null where nothing is known. */
export function findNext(problem: unknown): string | null {
  if (problem instanceof StepRefused) return problem.next;
  return problem instanceof ApiError ? (problem.error.details?.next ?? null) : null;
}

/** The event that ruled a hypothesis out, where it has no proof of membership because of that. */
export function findElimination(problem: unknown): number | null {
  if (!(problem instanceof ApiError) || problem.error.code !== "CONFLICT") return null;
  return problem.error.details?.eliminated_by?.seq ?? null;
}
