import { asEngineId, asTargetIndex, type Clock, type EngineRole } from "@espalier/core";
import {
  createTargetAdapters,
  createTargetLoad,
  type OwnedTargetAdapters,
  type TargetExclusion,
} from "@espalier/engines";
import type { RoutingTarget } from "../src/routing-target.ts";

type Signals = RoutingTarget["signals"];

export interface TargetChanges {
  readonly engine?: string;
  readonly role?: EngineRole;
  readonly weight?: number;
  readonly usable?: boolean;
  /** Unknown unless given. */
  readonly networkMs?: number;
  readonly signals?: Partial<Signals>;
  /** Told whenever its load changes. */
  readonly onLoad?: () => void;
  /** One that stands still unless given. */
  readonly clock?: Clock;
}

/** A target whose use and signals a test may change; it has no metrics unless they are given. */
export interface ScriptedTarget extends RoutingTarget {
  usable: boolean;
  /** Why, while it is not usable. */
  unusableBy: TargetExclusion;
  readonly signals: { -readonly [Name in keyof Signals]: Signals[Name] };
  readonly adapters: OwnedTargetAdapters;
}

const stillClock: Clock = { nowMs: () => 0, wallMs: () => 0 };

const noMetrics: Signals = {
  running: Number.NaN,
  waiting: Number.NaN,
  kvUse: Number.NaN,
  blockSize: Number.NaN,
  blockCount: Number.NaN,
  promptTokensTotal: Number.NaN,
  generationTokensTotal: Number.NaN,
  prefixQueries: Number.NaN,
  prefixHits: Number.NaN,
  inFlightAtScrape: Number.NaN,
  ageMs: () => Number.POSITIVE_INFINITY,
};

/** @param key of the target, and of its engine when `engine` is left out */
export function scriptedTarget(index: number, key: string, changes: TargetChanges = {}): ScriptedTarget {
  const { engine = key, role = "both", weight = 1, usable = true, networkMs = Number.NaN } = changes;
  const { signals = {}, onLoad, clock = stillClock } = changes;
  return {
    index: asTargetIndex(index),
    key,
    engine: { id: asEngineId(engine), role, weight },
    load: createTargetLoad(onLoad ? { clock, onChange: onLoad } : { clock }),
    signals: { ...noMetrics, ...signals },
    adapters: createTargetAdapters(() => 0),
    usable,
    unusableBy: "down",
    get exclusion() {
      return this.usable ? undefined : this.unusableBy;
    },
    networkMs,
  };
}
