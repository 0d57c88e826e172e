import type { Clock, Meter, Scheduler, TargetIndex } from "@espalier/core";
import type { Target } from "@espalier/engines";
import type { PrefixIndex } from "@espalier/prefix-index";
import {
  type Admission,
  type AdmissionMeters,
  type AdmissionRequest,
  ColdPrompt,
  createAdmission,
  createAdmissionMeters,
  MemoryWatch,
  noFleetUsage,
  noPeerLoad,
  type PeerLoad,
  type RequestQueue,
  type RoutingTarget,
  servesAlone,
} from "@espalier/routing";
import type { FeedQuality, UsagePlane } from "@espalier/shared-tree";
import type { AdmissionConfig } from "../config/index.ts";
import type { PlannedRequest, PoolSettings } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";

/** The admission queues of all pools. */
export interface AdmissionParts {
  readonly config: AdmissionConfig;
  /**
   * The queue of a pool, created on first use; undefined when admission is off. Queues are bounded because pools are.
   */
  of(pool: PoolSettings): Admission<Target> | undefined;
  /** Counts of each class over all pools; empty when admission is off. */
  counts(): readonly ClassCounts[];
}

interface AdmissionPartsOptions {
  readonly config: AdmissionConfig;
  /** How long requests of every pool wait at least while no engine is up, in milliseconds. */
  readonly minHoldMs: number;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  /** Load sent by other routers; undefined when nothing is shared. */
  readonly others: PeerLoad | undefined;
  /** Shared usage of tenants by the pool's model; undefined when nothing is shared. */
  readonly usage: Pick<UsagePlane, "of"> | undefined;
}

/** @throws RangeError for a configuration that was not checked */
export function createAdmissionParts(options: AdmissionPartsOptions): AdmissionParts {
  const { config, minHoldMs, clock, scheduler, meter, others = noPeerLoad, usage } = options;
  const queues = new WeakMap<PoolSettings, Admission<Target>>();
  const { meters, counts } = countClasses(createAdmissionMeters(meter));
  const create = (pool: PoolSettings): Admission<Target> => {
    const fleet = usage?.of(pool.model) ?? noFleetUsage;
    const holdMs = () => Math.max(minHoldMs, pool.holdMs);
    return createAdmission({ settings: config, clock, scheduler, meters, others, fleet, holdMs });
  };
  return {
    config,
    counts: () => (config.mode === "on" ? config.classes.map(({ name }) => counts(name)) : []),
    of(pool) {
      if (config.mode === "off") return undefined;
      let queue = queues.get(pool);
      if (!queue) {
        queue = create(pool);
        queues.set(pool, queue);
      }
      return queue;
    },
  };
}

/** Counts of one class over all pools, since the start. */
export interface ClassCounts {
  readonly name: string;
  /** Requests queued now. */
  readonly queued: number;
  /** Requests dispatched after waiting, and the milliseconds that they waited. */
  readonly waited: number;
  readonly waitedMs: number;
  /** Requests that left the queue without being dispatched. */
  readonly shed: number;
}

type Counts = { -readonly [key in keyof ClassCounts]: ClassCounts[key] };

/** Wraps meters, which are write-only, to count what they record. */
export function countClasses(meters: AdmissionMeters): {
  readonly meters: AdmissionMeters;
  readonly counts: (className: string) => ClassCounts;
} {
  const classes = new Map<string, Counts>();
  const find = (name: string): Counts => {
    const known = classes.get(name);
    if (known) return known;
    const created = { name, queued: 0, waited: 0, waitedMs: 0, shed: 0 };
    classes.set(name, created);
    return created;
  };
  return {
    counts: (className) => ({ ...find(className) }),
    meters: {
      of(className) {
        const inner = meters.of(className);
        const counts = find(className);
        return {
          ...inner,
          queued(change) {
            counts.queued += change;
            inner.queued(change);
          },
          waited(milliseconds) {
            counts.waited += 1;
            counts.waitedMs += milliseconds;
            inner.waited(milliseconds);
          },
          shed(reason) {
            if (reason !== "demoted") counts.shed += 1;
            inner.shed(reason);
          },
        };
      },
    },
  };
}

interface MemoryWatchOptions {
  readonly config: AdmissionConfig;
  readonly clock: Clock;
  readonly index: PrefixIndex;
  readonly feedQualityOf: (target: TargetIndex) => FeedQuality;
}

/**
 * Watches engines' cache memory, by what all routers send them.
 *
 * @returns undefined when no class has a max cold wait, since only those need it
 */
export function watchMemory({ config, clock, index, feedQualityOf }: MemoryWatchOptions): MemoryWatch | undefined {
  if (config.mode === "off" || config.classes.every(({ maxColdWaitMs }) => maxColdWaitMs === 0)) return undefined;
  const watch = new MemoryWatch({ clock, index, feedQualityOf });
  index.setPlacedListener((target, words, blockCount, { by = 0 }) => watch.sent(target, words, blockCount, by === 0));
  return watch;
}

const noneTried: ReadonlySet<string> = new Set();

/**
 * What a request would evict from engines' memory.
 *
 * @returns undefined without a memory watch, without a prompt, and in a pool with KV transfer
 */
export function coldPromptOf(
  context: Pick<RouterContext, "memory" | "dryRunSelector" | "mesh">,
  plan: PlannedRequest,
): ColdPrompt<Target> | undefined {
  const { memory, dryRunSelector, mesh } = context;
  const { pool, prompt, targets, onlyEngine } = plan;
  if (!memory || !prompt || targets.some(({ engine }) => engine.kvTransfer)) return undefined;
  const pendingTokens = ({ index, load }: RoutingTarget): number =>
    load.pendingPrefillTokens + (mesh?.load.pendingPrefillTokens[index] ?? 0);
  const parts = { watch: memory, dryRunSelector, pool, pendingTokens };
  return new ColdPrompt<Target>(parts, plan, { tried: noneTried, onlyEngine, accepts: servesAlone });
}

/**
 * The admission queue of a request; undefined for requests that are never queued.
 *
 * @param maxAhead see `AdmissionRequest`
 */
export function queueOf(
  context: Pick<RouterContext, "admission" | "dryRunSelector" | "memory" | "mesh">,
  plan: PlannedRequest,
  maxAhead: number | undefined,
): RequestQueue<Target> | undefined {
  const { service, pool, prompt, features, body, onlyEngine } = plan;
  const admission = service && context.admission.of(pool);
  if (!admission) return undefined;
  if (prompt) context.memory?.arrived(prompt);
  const request: AdmissionRequest = {
    className: service.className,
    tenant: service.tenant,
    deadlineMs: service.deadlineMs,
    promptTokens: features.promptTokens,
    expectedOutputTokens: features.expectedOutputTokens,
    onlyEngine,
    maxAhead,
    sizeBytes: body.reduce((sum, { length }) => sum + length, 0),
  };
  return { admission, request, cold: coldPromptOf(context, plan) };
}
