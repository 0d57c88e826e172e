import { asEngineId } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import { parseEnginesFile } from "../config/index.ts";

/** Names the engine of a call that is for one, at the listener for RL frameworks. */
export const engineHeader = "x-espalier-engine";

/** @param named an engine's id, or its URL */
export function findEngine(engines: readonly EngineRecord[], named: string): EngineRecord | undefined {
  const id = asEngineId(named);
  const byId = engines.find((engine) => engine.id === id);
  if (byId) return byId;
  const url = baseUrl(named);
  return engines.find((engine) => engine.url === url);
}

/**
 * The URL in the form of the fleet. A rank behind it, as routers with data parallelism list engines, is cut off.
 *
 * @returns undefined for what is no URL of an engine
 */
export function baseUrl(written: string): string | undefined {
  try {
    return parseEnginesFile(JSON.stringify([written.replace(/@\d+$/, "")]), "url")[0]?.url;
  } catch {
    return undefined;
  }
}
