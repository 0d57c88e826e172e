import type { EngineId, EngineRole, KvPullSpec, TargetIndex } from "@espalier/core";
import type { EngineSignals, TargetAdapters, TargetExclusion, TargetLoad } from "@espalier/engines";

/** A rank of an engine as decisions see it: the `Target` of engines without the means to reach it. */
export interface RoutingTarget {
  /** Dense in this process. */
  readonly index: TargetIndex;
  /** The same in every router. */
  readonly key: string;
  readonly engine: {
    readonly id: EngineId;
    readonly role: EngineRole;
    readonly weight: number;
    readonly kvPull?: KvPullSpec | undefined;
  };
  readonly load: TargetLoad;
  /** `dialect` is absent where nothing depends on the kind of engine. */
  readonly signals: Omit<EngineSignals, "dialect" | "awake"> & Partial<Pick<EngineSignals, "dialect">>;
  readonly adapters: Pick<TargetAdapters, "stateOf" | "seen">;
  /** Milliseconds of a round trip between this router and the engine; NaN until it is measured. */
  readonly networkMs: number;
  /** Whether it gets requests. */
  readonly usable: boolean;
  /** Why it gets none; undefined for a usable one. */
  readonly exclusion: TargetExclusion | undefined;
}
