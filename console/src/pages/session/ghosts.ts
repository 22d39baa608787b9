// How fast reference strategies would have narrowed the session's kit down: the ghosts of the funnel.

import { type Schemas, api, read } from "../../api/client";
import { ApiError } from "../../api/errors";
import type { Ghost } from "../../model/funnel";
import type { SessionLog } from "../../model/log";
import { useLoad } from "../../ui/parts";

export interface Ghosts {
  curves: Ghost[];
  /** Why a curve is missing; empty where none is, or where no kit is known. */
  missing: string;
}

const NONE: Ghosts = { curves: [], missing: "" };

/** The curves of a session's kit. They follow from kit and universe, so that no event changes them. */
export function useGhosts(id: string, log: SessionLog): Ghosts {
  const loaded = useLoad(async (signal): Promise<Ghosts> => {
    if (!log.hasKit || !log.withIds) return NONE;
    try {
      const params = { path: { session_id: id }, query: { fields: "kit.strategies" } };
      const { kit } = await read(api.GET("/v1/sessions/{session_id}/analysis", { params, signal }));
      return kit ? readGhosts(kit.strategies) : NONE;
    } catch (error) {
      // The page is whole without them.
      if (error instanceof ApiError) return { curves: [], missing: error.message };
      throw error;
    }
  }, [id, log]);
  return loaded.value ?? NONE;
}

function readGhosts(strategies: Schemas["StrategyFinding"][]): Ghosts {
  const named = strategies.map((each) => ({ ...each, name: each.strategy === "exact" ? ("optimal" as const) : each.strategy }));
  return {
    curves: named.flatMap((each) => (each.bits_left ? [{ name: each.name, bits: each.bits_left }] : [])),
    missing: named.flatMap((each) => (each.bits_left ? [] : [`no ${each.name} curve: ${each.reason}`])).join("; "),
  };
}
