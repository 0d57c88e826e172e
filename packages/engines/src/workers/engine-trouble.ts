import type { EngineId } from "@espalier/core";
import { findSlowEngines, type SlowEngine } from "./engine-pace.ts";
import type { EngineRecord } from "./engine-record.ts";

/** What is wrong with engines, for people: those that are not up, fail, are unresponsive or slow. */
export function engineTroubles(engines: readonly EngineRecord[]): ReadonlyMap<EngineId, string> {
  const slow = findSlowEngines(engines);
  return new Map(
    engines.flatMap((engine) => {
      const trouble = troubleOf(engine, slow.get(engine.id));
      return trouble === undefined ? [] : [[engine.id, trouble]];
    }),
  );
}

function troubleOf(engine: EngineRecord, slow: SlowEngine | undefined): string | undefined {
  const { state, stateReason, breaker, wait } = engine;
  if (state === "removed" || (state === "starting" && engine.health.consecutiveFailures === 0)) return undefined;
  if (state !== "up") return `${state}: ${stateReason}`;
  if (!Number.isNaN(wait.unresponsiveMs)) {
    return `unresponsive for ${inSeconds(wait.unresponsiveMs)}: no output, oldest request waits ${inSeconds(wait.oldestMs)}`;
  }
  if (breaker.state === "open") return `circuit open: ${breaker.reason}`;
  if (slow?.measure === "ttft") {
    return `slow: first tokens after ${inTenths(slow.ms)} (median), others ${inTenths(slow.othersMs)}`;
  }
  return slow && `slow: ${Math.round(slow.ms)} ms per output token (median), others ${Math.round(slow.othersMs)} ms`;
}

const inSeconds = (ms: number): string => `${Math.round(ms / 1_000)} s`;
const inTenths = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
