// Requests that carry a policy file.

import { send } from "../../api/client";

export async function submit<T>(path: string, text: string, method = "POST", query: Record<string, string> = {}): Promise<T> {
  return (await (await send(path, { method, text, type: "application/yaml", query })).json()) as T;
}
