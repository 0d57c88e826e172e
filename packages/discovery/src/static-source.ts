import type { EngineSpec } from "@espalier/common";
import type { EngineSource } from "./engine-source.ts";

/** A source whose list never changes. */
export function createStaticSource(specs: readonly EngineSpec[]): EngineSource {
  return {
    name: "static list",
    async start(observer) {
      observer.onSpecs(specs);
    },
    async stop() {},
  };
}
