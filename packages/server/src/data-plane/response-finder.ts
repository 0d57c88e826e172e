import { type Clock, EspalierError, type HttpClient, RecencyMap } from "@espalier/common";
import type { EngineRecord, Fleet } from "@espalier/workers";
import type { Pools } from "../routing/pools.ts";

const askTimeoutMs = 2_000;
const maxAnswerBytes = 16_777_216;
/** More engines than this are not asked at once. */
const maxAsked = 64;
/** Responses that are looked for at once. */
const maxLookups = 32;
/** So long, and of so many responses, it is remembered that no engine has them. */
const absentMs = 2_000;
const maxAbsent = 4_096;

/** Finds the engine that holds a stored response which this router did not see made. */
export interface ResponseFinder {
  /**
   * @returns the engine's id; undefined where none of those that are up has it
   * @throws EspalierError `overloaded` while as many are looked for as may be
   */
  find(responseId: string): Promise<string | undefined>;
}

export interface ResponseFinderDependencies {
  readonly fleet: Pick<Fleet, "engines">;
  readonly pools: Pick<Pools, "settingsFor">;
  /** Apart from that of health checks: what clients ask for must not stand before them. */
  readonly http: HttpClient;
  readonly clock: Clock;
}

/** One question of a client is one to every engine, so each is asked once however many clients ask for it. */
export function createResponseFinder({ fleet, pools, http, clock }: ResponseFinderDependencies): ResponseFinder {
  const lookups = new Map<string, Promise<string | undefined>>();
  const absentUntilMs = new RecencyMap<string, number>();

  const ask = async (engine: EngineRecord, responseId: string): Promise<string> => {
    const response = await http({
      url: `${engine.url}/v1/responses/${encodeURIComponent(responseId)}`,
      headers: asRecord(pools.settingsFor(engine.models?.[0]?.id ?? "*").upstreamHeaders),
      timeoutMs: askTimeoutMs,
      maxBytes: maxAnswerBytes,
    });
    if (response.status !== 200) throw new EspalierError("response_not_found");
    return engine.id;
  };
  const lookUp = async (responseId: string): Promise<string | undefined> => {
    const candidates = fleet.engines.filter((engine) => engine.state === "up").slice(0, maxAsked);
    const found = await Promise.any(candidates.map((engine) => ask(engine, responseId))).catch(() => undefined);
    lookups.delete(responseId);
    if (found === undefined) absentUntilMs.set(responseId, clock.nowMs() + absentMs);
    if (absentUntilMs.size > maxAbsent) absentUntilMs.deleteOldest();
    return found;
  };
  return {
    async find(responseId) {
      if (clock.nowMs() < (absentUntilMs.get(responseId) ?? 0)) return undefined;
      const running = lookups.get(responseId);
      if (running) return running;
      if (lookups.size >= maxLookups)
        throw new EspalierError("overloaded", "Too many responses are looked for at once.");
      const lookup = lookUp(responseId);
      lookups.set(responseId, lookup);
      return lookup;
    },
  };
}

function asRecord(pairs: readonly string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let i = 0; i + 1 < pairs.length; i += 2) record[pairs[i] as string] = pairs[i + 1] as string;
  return record;
}
