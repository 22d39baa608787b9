// How fast reference strategies would have narrowed the session's kit down: the ghosts of the funnel.

import { ApiError, get } from "../../api/client";
import type { Ghost } from "../../model/funnel";
import type { SessionLog } from "../../model/log";
import { useLoad } from "../../ui/parts";

interface AnalysisPart {
  kit: { strategies: { strategy: "greedy" | "exact"; bits_left: number[] | null; reason: string }[] } | null;
}

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
      const { kit } = await get<AnalysisPart>(`v1/sessions/${encodeURIComponent(id)}/analysis`, { fields: "kit.strategies" }, signal);
      return kit ? readGhosts(kit.strategies) : NONE;
    } catch (error) {
      // The page is whole without them.
      if (error instanceof ApiError) return { curves: [], missing: error.message };
      throw error;
    }
  }, [id, log]);
  return loaded.value ?? NONE;
}

function readGhosts(strategies: NonNullable<AnalysisPart["kit"]>["strategies"]): Ghosts {
  const named = strategies.map((each) => ({ ...each, name: each.strategy === "exact" ? ("optimal" as const) : each.strategy }));
  return {
    curves: named.flatMap((each) => (each.bits_left ? [{ name: each.name, bits: each.bits_left }] : [])),
    missing: named.flatMap((each) => (each.bits_left ? [] : [`no ${each.name} curve: ${each.reason}`])).join("; "),
  };
}
