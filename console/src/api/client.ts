// Requests to the server that served this page. The key stays in this module's memory; it is never stored, and never in a URL.

import { signal } from "@preact/signals";
import type { components } from "./schema";

export type Schemas = components["schemas"];

export interface Identity {
  kind: string;
  id: string;
  authenticated: boolean;
  key_id: string | null;
  scopes: string[];
  /** Scopes that hold for single sessions or spaces, with the ids, or beginnings of ids, that they hold for. */
  restricted: Record<string, string[]>;
}

/** What the server said instead of an answer; `code` is the protocol's, or `NETWORK` where there was none. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

let key: string | null = null;

/** Who the server takes this page for; null until it said so. */
export const identity = signal<Identity | null>(null);
/** Whether the server asks for a key before it answers. */
export const needsKey = signal(false);
/** The name under which a server without keys is asked. */
export const spokenName = signal("console");

/** Whether this key has a scope for one session or space, or for any where none is named. */
export function may(scope: string, target?: string): boolean {
  if (identity.value === null) return false;
  if (identity.value.scopes.includes(scope)) return true;
  const patterns = identity.value.restricted[scope] ?? [];
  return patterns.some((each) => target === undefined || (each.endsWith("*") ? target.startsWith(each.slice(0, -1)) : target === each));
}

export function isOperator(): boolean {
  return identity.value?.kind === "operator";
}

export function mayOperate(space?: string): boolean {
  return may("spaces:operate", space) && isOperator();
}

/** Only who proposed something, or an operator, may take it back. */
export function mayWithdraw(space: string, proposer: { id: string }): boolean {
  return may("spaces:propose", space) && (isOperator() || proposer.id === identity.value?.id);
}

type Query = Record<string, string | number | boolean | null | undefined>;

interface Options {
  method?: string;
  body?: unknown;
  text?: string;
  type?: string;
  query?: Query;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

export function address(path: string, query: Query = {}): string {
  const url = new URL(path.replace(/^\//, ""), document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

function headersOf(options: Options): Record<string, string> {
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  if (key !== null) headers["authorization"] = `Bearer ${key}`;
  else headers["x-cmbs-actor"] ??= `operator:${spokenName.value}`;
  if (options.body !== undefined) headers["content-type"] = "application/json";
  if (options.text !== undefined) headers["content-type"] = options.type ?? "text/plain";
  return headers;
}

/** The raw answer; ApiError where the server refused, or did not answer. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const init: RequestInit = { method: options.method ?? "GET", headers: headersOf(options), credentials: "omit" };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) init.body = JSON.stringify(options.body);
  if (options.text !== undefined) init.body = options.text;
  let response: Response;
  try {
    response = await fetch(address(path, options.query), init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "NETWORK", "the server did not answer");
  }
  if (response.ok) return response;
  if (response.status === 401) needsKey.value = true;
  throw await readError(response);
}

async function readError(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: { code: string; message: string; details?: Record<string, unknown> } };
    if (body.error) return new ApiError(response.status, body.error.code, body.error.message, body.error.details ?? {});
  } catch {
    // Not JSON: a proxy answered.
  }
  return new ApiError(response.status, `HTTP_${response.status}`, response.statusText || "the answer is not one of the API");
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, { query, signal })).json()) as T;
}

export async function post<T>(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<T> {
  return (await (await send(path, { method: "POST", body, headers })).json()) as T;
}

/** The answer, or null where the server does not have the route or the thing. */
export async function find<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T | null> {
  try {
    return await get<T>(path, query, signal);
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 405)) return null;
    throw error;
  }
}

/** Every page of a list, up to `most` items. */
export async function list<T>(path: string, member: string, query: Query = {}, most = 1000): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const page: Record<string, unknown> = await get(path, { ...query, cursor });
    items.push(...(page[member] as T[]));
    cursor = (page["next_cursor"] as string | null) ?? null;
  } while (cursor !== null && items.length < most);
  return items;
}

/** Ask who we are, with this key or without one. The key is kept only where the server accepts it. */
export async function signIn(candidate: string | null): Promise<void> {
  const before = key;
  key = candidate;
  try {
    identity.value = await get<Identity>("v1/whoami");
    needsKey.value = false;
  } catch (error) {
    key = before;
    if (error instanceof ApiError && error.status === 401) needsKey.value = true;
    throw error;
  }
}

export function signOut(): void {
  key = null;
  identity.value = null;
  needsKey.value = true;
}

export function hasKey(): boolean {
  return key !== null;
}

export function saveFile(name: string, content: BlobPart, type = "application/json"): void {
  const link = document.createElement("a");
  const url = URL.createObjectURL(new Blob([content], { type }));
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
