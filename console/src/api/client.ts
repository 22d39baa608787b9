// Requests to the server that served this page, checked against its description. The key stays in this module's memory;
// it is never stored, and never in a URL.

import { signal } from "@preact/signals";
import createClient, { type FetchResponse, type MaybeOptionalInit } from "openapi-fetch";
import type { HttpMethod, PathsWithMethod, RequiredKeysOf } from "openapi-typescript-helpers";
import { ApiError, hasStatus, readError } from "./errors";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

let key: string | null = null;
/** The last key that the server knew. */
let accepted: string | null = null;

/** Who the server takes this page for; null until it said so. */
export const identity = signal<Schemas["WhoAmI"] | null>(null);
/** Whether the server asks for a key before it answers. */
export const needsKey = signal(false);
/** Whether the server took back a key that it had accepted. */
export const lostKey = signal(false);
/** The name under which a server without keys is asked. */
const SPOKEN_NAME = "operator:console";

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

type Json = "application/json";
type Path<Method extends HttpMethod> = PathsWithMethod<paths, Method>;
type Options<P extends keyof paths, Method extends HttpMethod> = MaybeOptionalInit<paths[P], Method>;
type Get<P extends Path<"get">> = Options<P, "get">;
type Post<P extends Path<"post">> = Options<P, "post">;
type Put<P extends Path<"put">> = Options<P, "put">;
type Rest<Init> = RequiredKeysOf<Init> extends never ? [init?: Init] : [init: Init];

/** `openapi-fetch` infers options from what is passed, and takes a misspelt one. Here they are those of the path. */
interface Api {
  GET<P extends Path<"get">>(path: P, ...init: Rest<Get<P>>): Promise<FetchResponse<paths[P]["get"], Get<P>, Json>>;
  POST<P extends Path<"post">>(path: P, ...init: Rest<Post<P>>): Promise<FetchResponse<paths[P]["post"], Post<P>, Json>>;
  PUT<P extends Path<"put">>(path: P, ...init: Rest<Put<P>>): Promise<FetchResponse<paths[P]["put"], Put<P>, Json>>;
}

const UNANSWERED = { code: "NETWORK", message: "the server did not answer", details: null } as const;
const client = createClient<paths, Json>({
  // What begins with a dot is taken from <base>: the server may be mounted below a path.
  baseUrl: ".",
  credentials: "omit",
  headers: { accept: "application/json" },
});
client.use({
  onRequest({ request: { headers } }) {
    if (key !== null) headers.set("authorization", `Bearer ${key}`);
    else if (!headers.has("x-cmbs-actor")) headers.set("x-cmbs-actor", SPOKEN_NAME);
  },
  onResponse({ response }) {
    if (response.status !== 401) return;
    if (key !== null && key === accepted) lostKey.value = true;
    needsKey.value = true;
  },
  onError({ request }) {
    if (!request.signal.aborted) throw new ApiError(UNANSWERED);
  },
});

export const api: Api = client;

/** Options of a request whose answer is not parsed. */
export const AS_IT_IS = { parseAs: "stream" } as const;
/** Options of a request whose body is the text of a file. */
export const AS_YAML = { headers: { "content-type": "application/yaml" }, bodySerializer: (text: unknown) => text };

export interface Answered<Body = unknown> {
  data?: Body;
  error?: Schemas["ErrorResponse"];
  response: Response;
}
type Data<A extends Answered> = NonNullable<A["data"]>;

async function expectAnswer<A extends Answered>(asked: Promise<A>): Promise<A> {
  const answer = await asked;
  const { error, response } = answer;
  if (response.ok) return answer;
  throw readError(response, error);
}

/** The answer; ApiError where the server refused, or did not answer. */
export async function read<A extends Answered>(asked: Promise<A>): Promise<Data<A>> {
  return (await expectAnswer(asked)).data!;
}

/** The same, of a request with `AS_IT_IS`: with a body that was not read yet. */
export async function readResponse(asked: Promise<Answered>): Promise<Response> {
  return (await expectAnswer(asked)).response;
}

/** The answer, or null where the server does not have the route or the thing. */
export async function find<A extends Answered>(asked: Promise<A>): Promise<Data<A> | null> {
  try {
    return await read(asked);
  } catch (problem) {
    if (hasStatus(problem, 404, 405)) return null;
    throw problem;
  }
}

type AnsweredPage = Answered<{ next_cursor?: string | null }>;
type AskPage<A extends AnsweredPage> = (cursor: string | undefined) => Promise<A>;

/** The pages of a list, each asked for once the one before was taken. */
export async function* readPages<A extends AnsweredPage>(ask: AskPage<A>): AsyncGenerator<Data<A>> {
  let cursor: string | undefined;
  do {
    const page = await read(ask(cursor));
    yield page;
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
}

/** What is in the pages of a list, up to `most` items or some of the same page more. */
export async function list<A extends AnsweredPage, Item>(
  ask: AskPage<A>,
  itemsOf: (page: Data<A>) => Item[],
  most: number,
): Promise<Item[]> {
  const items: Item[] = [];
  for await (const page of readPages(ask)) {
    for (const each of itemsOf(page)) items.push(each);
    if (items.length >= most) break;
  }
  return items;
}

/** Ask who we are, with this key or without one. The key is kept only where the server accepts it. */
export async function signIn(candidate: string | null): Promise<void> {
  const before = key;
  key = candidate;
  try {
    identity.value = await read(api.GET("/v1/whoami"));
    needsKey.value = false;
    lostKey.value = false;
    accepted = candidate;
  } catch (problem) {
    key = before;
    throw problem;
  }
}

export function signOut(): void {
  key = null;
  accepted = null;
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
