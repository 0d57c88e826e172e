import type { EngineSpec } from "@espalier/common";
import type { EngineSource, SourceObserver } from "./engine-source.ts";

/** A source whose list is given to it. */
export interface ListSource extends EngineSource {
  /** Another list from now on, started or not. */
  replace(specs: readonly EngineSpec[]): void;
}

/** A source of these engines until they are replaced. */
export function createListSource(initial: readonly EngineSpec[]): ListSource {
  let specs = initial;
  let observer: SourceObserver | undefined;
  return {
    name: "the configuration",
    async start(started) {
      observer = started;
      started.onList(specs);
    },
    async stop() {
      observer = undefined;
    },
    replace(next) {
      specs = next;
      observer?.onList(specs);
    },
  };
}
