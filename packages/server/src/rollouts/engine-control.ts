import { asEngineId, type Clock, type EngineId, isJsonObject } from "@espalier/core";
import type { Fleet } from "@espalier/engines";
import type { OperatorTable } from "../lifecycle/operator-engines.ts";
import { type ControlEffect, type MemoryPart, memoryParts } from "./control-calls.ts";

type Effect = Pick<ControlEffect, "pauses" | "releases"> & { readonly tags: readonly string[] };

/** What frameworks did to engines, the same at every router of the mesh. */
export interface EngineControl {
  /**
   * A call is about to be sent. An engine that it pauses takes no requests from now on.
   *
   * @returns takes that back, when the call has failed
   */
  begin(engine: EngineId, effect: Effect): () => void;
  /** The call succeeded. @param isVoid whether the engine's caches are void now */
  end(engine: EngineId, effect: Effect, isVoid: boolean): void;
  /** The engine was removed. */
  forget(engine: EngineId): void;
}

interface EngineControlOptions {
  /** One row per engine, which all routers share. */
  readonly table: OperatorTable;
  readonly fleet: Pick<Fleet, "engines" | "engine" | "setPaused" | "voidCaches" | "onChange">;
  readonly clock: Clock;
}

/** A row of the table. */
interface ControlState {
  readonly isPaused: boolean;
  readonly released: readonly MemoryPart[];
  /** Unix milliseconds of the last call that voided its caches; later for each further one. */
  readonly voidedMs: number;
}

const untouched: ControlState = { isPaused: false, released: [], voidedMs: 0 };

/** A row that a router sees for the first time voids caches only if it is younger: a router that joins keeps what it knows. */
const freshMs = 60_000;

/** Applies the rows of all routers to the fleet from now on. */
export function createEngineControl({ table, fleet, clock }: EngineControlOptions): EngineControl {
  /** By engine: the last `voidedMs` that was applied here. */
  const applied = new Map<string, number>();

  const rows = (): ReadonlyMap<string, ControlState> =>
    new Map(table.entries().map(({ engine, value }) => [engine, readState(value)]));
  const stateOf = (engine: EngineId): ControlState => rows().get(engine) ?? untouched;
  const change = (engine: EngineId, changed: Partial<ControlState>): void =>
    table.put(engine, { ...stateOf(engine), ...changed });
  const apply = (): void => {
    const now = rows();
    for (const [engine, { voidedMs }] of now) {
      if (voidedMs > (applied.get(engine) ?? clock.wallMs() - freshMs)) fleet.voidCaches(asEngineId(engine));
      applied.set(engine, voidedMs);
    }
    for (const engine of applied.keys()) if (!now.has(engine)) applied.delete(engine);
    for (const { id } of fleet.engines) {
      const { isPaused, released } = now.get(id) ?? untouched;
      fleet.setPaused(id, isPaused || released.length > 0);
    }
  };
  table.onChange(apply);
  fleet.onChange((changed, { id }) => {
    if (changed === "added") apply();
    // A new process is not paused.
    if (changed === "restarted" && rows().has(id)) change(id, { isPaused: false, released: [] });
  });

  return {
    begin(engine, { pauses, releases, tags }) {
      const before = stateOf(engine);
      if (pauses) change(engine, { isPaused: true });
      if (releases) change(engine, { released: union(before.released, partsOf(tags, releases)) });
      return () => {
        if (pauses) change(engine, { isPaused: before.isPaused });
        if (releases) change(engine, { released: before.released });
      };
    },
    end(engine, { pauses, releases, tags }, isVoid) {
      const { released, voidedMs } = stateOf(engine);
      if (pauses === false) change(engine, { isPaused: false });
      if (releases === false)
        change(engine, { released: released.filter((part) => !partsOf(tags, memoryParts).includes(part)) });
      if (isVoid) change(engine, { voidedMs: Math.max(clock.wallMs(), voidedMs + 1) });
    },
    forget: (engine) => table.forget(engine),
  };
}

const isPart = (tag: unknown): tag is MemoryPart => memoryParts.some((part) => part === tag);

/** @param whole those of a call without tags */
const partsOf = (tags: readonly string[], whole: readonly MemoryPart[]): readonly MemoryPart[] =>
  tags.length === 0 ? whole : tags.filter(isPart);

const union = (one: readonly MemoryPart[], other: readonly MemoryPart[]): readonly MemoryPart[] => [
  ...new Set([...one, ...other]),
];

/** Reads a row, which may be of a router of another version. */
function readState(value: unknown): ControlState {
  if (!isJsonObject(value)) return untouched;
  const { isPaused, released, voidedMs } = value;
  return {
    isPaused: isPaused === true,
    released: Array.isArray(released) ? released.filter(isPart) : [],
    voidedMs: typeof voidedMs === "number" && Number.isFinite(voidedMs) ? voidedMs : 0,
  };
}
