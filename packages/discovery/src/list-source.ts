import type { EngineSpec } from "@espalier/common";
import type { EngineSource } from "./engine-source.ts";

/** A source of these engines. */
export function createListSource(specs: readonly EngineSpec[]): EngineSource {
  return {
    name: "the configuration",
    async start(observer) {
      observer.onList(specs);
    },
    async stop() {},
  };
}
