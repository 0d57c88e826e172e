import { type Cancel, type Clock, type ErrorCode, EspalierError, type Scheduler } from "@espalier/core";
import type { AdmissionMeters, ShedReason } from "./admission-meters.ts";
import type {
  AdmissionExclusion,
  AdmissionListener,
  AdmissionRequest,
  AdmissionTarget,
  AdmissionTicket,
  PeerLoad,
} from "./admission-request.ts";
import { type ClassQueue, DeficitScheduler, type ScanState } from "./class-queue.ts";
import { DrainRate } from "./drain-rate.ts";
import { FairShareBackoff, type FleetUsage, type TenantUsage } from "./fair-share.ts";
import { ParkedRequests } from "./parked-requests.ts";
import { type AdmissionSettings, checkSettings } from "./settings.ts";
import { ClassPartition, hasCandidate, UnsaturatedTargets } from "./unsaturated-targets.ts";
import {
  createServiceClasses,
  engineShare,
  type ServiceClass,
  type TicketOwner,
  WaitingRequest,
} from "./waiting-request.ts";

export interface AdmissionOptions {
  readonly settings: AdmissionSettings;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly meters: AdmissionMeters;
  /** Load sent by other routers. */
  readonly others: PeerLoad;
  readonly fleet: FleetUsage;
  /**
   * How long a request waits, after its arrival, while no engine is up, in milliseconds; read for each request. 0, the
   * default, for not at all: its caller then finds that there is no engine.
   */
  readonly holdMs?: () => number;
}

/** What decides where a request may go. */
type Placement = Pick<AdmissionRequest, "className" | "deadlineMs" | "onlyEngine">;

/** What a request would meet now. */
export interface ExplainedAdmission {
  /** Whether it would wait in the queue first. */
  readonly isQueued: boolean;
  /** The targets that it would be kept from, by key; of one that would wait, not known yet. */
  readonly excluded: ReadonlyMap<string, AdmissionExclusion>;
}

/** The work of one queued request. */
export interface WaitingWork {
  /** Estimated prompt tokens that an engine will have to compute. */
  readonly uncachedTokens: number;
  /** Of its answer; 0 when unknown. */
  readonly outputTokens: number;
  /** Milliseconds in which it has to leave the queue to meet its deadline; Infinity without one. */
  readonly leaveInMs: number;
}

/**
 * Creates the queue of one pool. While any engine is below its saturation limit nothing waits, and a request costs one
 * look at each engine's load. Past that, requests wait here instead of in the engines' own queues, where they can no
 * longer be reordered. They are ordered by class, within a class by the tokens served to each tenant, and within a
 * tenant by the class's order. A request that needs one busy engine does not block those behind it.
 *
 * @throws RangeError for inconsistent settings
 */
export function createAdmission<Target extends AdmissionTarget>(options: AdmissionOptions): Admission<Target> {
  checkSettings(options.settings);
  return new Admission<Target>(options);
}

/** Most requests that one scan tries. */
export const maxScanned = 256;
/** How often the queue is scanned when no event has announced an unsaturated engine. */
export const rescanMs = 20;
/** Retry-After is between these. */
const retryBoundsS = { least: 1, most: 60 } as const;

/** What a request is refused with; `queue_full` for the other reasons. */
const refusals: Partial<Record<ShedReason, ErrorCode>> = {
  deadline_missed: "deadline_missed",
  no_engine: "no_engine_available",
};

/** The admission queue of one pool; see `createAdmission`. */
export class Admission<Target extends AdmissionTarget> implements TicketOwner<Target> {
  readonly #settings: AdmissionSettings;
  readonly #clock: Clock;
  readonly #timers: Scheduler;
  readonly #classes: readonly ServiceClass<Target>[];
  readonly #classOf: ReadonlyMap<string, ServiceClass<Target>>;
  readonly #turns: DeficitScheduler<WaitingRequest<Target>>;
  readonly #unsaturated: UnsaturatedTargets<Target>;
  readonly #partition: ClassPartition;
  readonly #drain = new DrainRate();
  readonly #fleet: FleetUsage;
  readonly #backoff: FairShareBackoff<Target>;
  readonly #parked: ParkedRequests<Target>;
  readonly #holdMs: () => number;
  /** Requests in the queue. */
  queued = 0;
  #sizeBytes = 0;
  #sequence = 0;
  #cancelRescan: Cancel | undefined;
  #isScanning = false;
  #mustRescan = false;

  constructor({ settings, clock, scheduler, meters, others, fleet, holdMs = () => 0 }: AdmissionOptions) {
    this.#holdMs = holdMs;
    this.#settings = settings;
    this.#clock = clock;
    this.#timers = scheduler;
    this.#fleet = fleet;
    this.#backoff = new FairShareBackoff(fleet, others);
    this.#classes = createServiceClasses(settings, { meters, fleet });
    this.#classOf = new Map(this.#classes.map((serviceClass) => [serviceClass.name, serviceClass]));
    this.#turns = new DeficitScheduler(
      settings.classScheduling,
      this.#classes.map(({ queue }) => queue),
    );
    this.#partition = new ClassPartition(others, () => this.#isYieldingQueued());
    this.#unsaturated = new UnsaturatedTargets(settings, others, this.#partition);
    this.#parked = new ParkedRequests({
      ...{ settings, clock, scheduler },
      isBusy: () => this.queued > 0,
      released: (waiting) => this.#admit(waiting, clock.nowMs()),
    });
  }

  /** Requests parked for memory. */
  get parked(): number {
    return this.#parked.count;
  }

  /**
   * A request arrived. If an engine is unsaturated and nothing is queued before it, it is admitted before this returns.
   *
   * @returns undefined when it was refused
   */
  enter(request: AdmissionRequest, listener: AdmissionListener<Target>): AdmissionTicket | undefined {
    const nowMs = this.#clock.nowMs();
    const serviceClass = this.#classFor(request);
    const uncachedTokens = serviceClass.expectUncached(request.promptTokens);
    this.#partition.offered(
      serviceClass.settings.yields,
      { uncachedTokens, outputTokens: request.expectedOutputTokens },
      nowMs,
    );
    const waiting = new WaitingRequest<Target>({
      request,
      listener,
      serviceClass,
      uncachedTokens,
      arrivedMs: nowMs,
      heldUntilMs: this.#heldUntil(nowMs),
      owner: this,
      sequence: this.#sequence++,
    });
    if (this.#parked.park(waiting)) return waiting;
    return this.#admit(waiting, nowMs) ? waiting : undefined;
  }

  /**
   * What a request would meet now. Changes nothing.
   */
  explain(request: Placement, targets: readonly Target[]): ExplainedAdmission {
    const { deadlineMs, onlyEngine } = request;
    const serviceClass = this.#classFor(request);
    const { settings } = serviceClass;
    const targetMs = deadlineMs ?? settings.targetMs ?? Number.POSITIVE_INFINITY;
    const wanted = { ...settings, maxPendingMs: engineShare * targetMs, onlyEngine, waitsForEngine: false };
    const found = this.#unsaturated.find(targets, wanted, this.#clock.nowMs());
    return {
      isQueued: found === undefined || this.#hasWaitingBefore(serviceClass),
      excluded: this.#unsaturated.excluded(targets, found ?? targets, wanted),
    };
  }

  #classFor({ className }: Placement): ServiceClass<Target> {
    return this.#classOf.get(className ?? "") ?? this.#classOf.get(this.#settings.defaultClass)!;
  }

  /** @returns whether it was dispatched or queued; false when it was refused */
  #admit(waiting: WaitingRequest<Target>, nowMs: number): boolean {
    const { serviceClass, listener, arrivedMs } = waiting;
    if (!this.#hasWaitingBefore(serviceClass)) {
      const all = listener.targets();
      const targets = this.#unsaturated.find(all, waiting, nowMs);
      if (targets && !this.#shouldBackOff(waiting, targets, nowMs)) {
        waiting.excluded = this.#unsaturated.excluded(all, targets, waiting);
        waiting.waitedMs = nowMs - arrivedMs;
        listener.admitted(targets, waiting);
        return true;
      }
    }
    return this.#queue(waiting);
  }

  /** What is queued, in no order. */
  backlog(): readonly WaitingWork[] {
    const nowMs = this.#clock.nowMs();
    return this.#classes.flatMap(({ queue }) =>
      [...queue.entries()].map(({ request, uncachedTokens, goByMs }) => ({
        ...{ uncachedTokens, outputTokens: request.expectedOutputTokens, leaveInMs: goByMs - nowMs },
      })),
    );
  }

  /** An engine's load has fallen, or another engine became usable. Cheap while the queue is empty. */
  capacityFreed(): void {
    if (this.queued > 0) this.#scan();
  }

  /** Tokens served by this router, by class and tenant. */
  usage(): readonly TenantUsage[] {
    const nowMs = this.#clock.nowMs();
    return this.#classes.flatMap(({ name, queue }) =>
      [...queue.served.entries(nowMs)].map(([tenant, tokens]) => ({ className: name, tenant, tokens })),
    );
  }

  left(request: WaitingRequest<Target>): void {
    if (!this.#parked.remove(request)) this.#take(request);
    request.serviceClass.meters.shed("client_gone");
  }

  served({ serviceClass, request }: WaitingRequest<Target>, tokens: number): void {
    const nowMs = this.#clock.nowMs();
    serviceClass.queue.served.charge(request.tenant, tokens, nowMs);
    this.#fleet.served(serviceClass.name, request.tenant, tokens);
    this.#turns.charge(serviceClass.queue, tokens, nowMs);
  }

  /** Whether a request of the same class or a higher one is queued. Lower classes have no claim to its place. */
  #hasWaitingBefore(serviceClass: ServiceClass<Target>): boolean {
    if (this.queued === 0) return false;
    if (this.#settings.classScheduling === "deficit") return true;
    for (let rank = 0; rank <= serviceClass.rank; rank++) if (this.#classes[rank]!.queue.count > 0) return true;
    return false;
  }

  /** Whether a request of a class that yields is queued here or at another router. */
  #isYieldingQueued(): boolean {
    return this.#classes.some(({ name, settings, queue }) => {
      return settings.yields && (queue.count > 0 || this.#fleet.neediest(name) < Number.POSITIVE_INFINITY);
    });
  }

  /** @returns whether it was accepted: it is queued, or was dispatched at once */
  #queue(waiting: WaitingRequest<Target>): boolean {
    const { arrivedMs, goByMs, listener, request } = waiting;
    waiting.uncachedTokens = listener.uncachedTokens?.() ?? waiting.uncachedTokens;
    if (this.queued >= (request.maxAhead ?? Number.POSITIVE_INFINITY)) {
      this.#refuse(waiting, "overflow");
      return false;
    }
    if (goByMs < Number.POSITIVE_INFINITY && arrivedMs + this.#predictMs(waiting) > goByMs) {
      if (!this.#demote(waiting)) return false;
    }
    if (!this.#makePlace(waiting)) {
      this.#refuse(waiting, "queue_full");
      return false;
    }
    this.#add(waiting);
    this.#scan();
    return true;
  }

  /**
   * Expected milliseconds until its turn, from the recent drain rate; 0 while that is unknown, and for the first one: how long an
   * earlier queue took says little, and nobody would learn better if nothing were queued.
   */
  #predictMs({ serviceClass, uncachedTokens }: WaitingRequest<Target>): number {
    if (this.queued === 0) return 0;
    let tokens = uncachedTokens;
    for (let rank = 0; rank <= serviceClass.rank; rank++) tokens += this.#classes[rank]!.queue.uncachedTokens;
    return this.#drain.predictMs(tokens, this.#clock.nowMs()) ?? 0;
  }

  /**
   * Removes a missed deadline and moves the request down one class. @returns false when its class rejects it instead
   */
  #demote(waiting: WaitingRequest<Target>): boolean {
    const { serviceClass } = waiting;
    if (serviceClass.settings.onMiss === "reject") {
      this.#refuse(waiting, "deadline_missed");
      return false;
    }
    serviceClass.meters.shed("demoted");
    waiting.forgetDeadline();
    waiting.serviceClass = this.#classes[serviceClass.rank + 1] ?? serviceClass;
    return true;
  }

  /** Its wait for an engine is over: there is one, or it is refused. @returns false when it was */
  #holdOn(waiting: WaitingRequest<Target>, nowMs: number): boolean {
    if (!hasCandidate(waiting.listener.targets())) {
      this.#refuse(waiting, "no_engine");
      return false;
    }
    waiting.heldUntilMs = this.#heldUntil(nowMs);
    return true;
  }

  #heldUntil(nowMs: number): number {
    const holdMs = this.#holdMs();
    return holdMs > 0 ? nowMs + holdMs : Number.POSITIVE_INFINITY;
  }

  #add(waiting: WaitingRequest<Target>): void {
    const { queue, meters } = waiting.serviceClass;
    const nowMs = this.#clock.nowMs();
    if (queue.count === 0) this.#turns.arrived(queue, nowMs);
    this.#drain.waiting(this.queued === 0, nowMs);
    queue.add(waiting, nowMs);
    meters.queued(1);
    waiting.isHeld ||= waiting.waitsForEngine && !hasCandidate(waiting.listener.targets());
    if (waiting.isHeld) meters.held(1);
    waiting.isWaiting = true;
    this.queued += 1;
    this.#sizeBytes += waiting.request.sizeBytes;
    this.#cancelRescan ??= this.#timers.every(rescanMs, () => this.#scan());
  }

  #take(waiting: WaitingRequest<Target>): void {
    const { queue, meters } = waiting.serviceClass;
    queue.remove(waiting);
    meters.queued(-1);
    if (waiting.isHeld) meters.held(-1);
    waiting.isWaiting = false;
    this.#drain.waiting(false, this.#clock.nowMs());
    this.queued -= 1;
    this.#sizeBytes -= waiting.request.sizeBytes;
    if (this.queued > 0) return;
    this.#cancelRescan?.();
    this.#cancelRescan = undefined;
  }

  /** Preempts as many as one more request needs to fit: none at all when that would not be enough. */
  #makePlace(newcomer: WaitingRequest<Target>): boolean {
    const { maxQueued, maxQueuedBytes } = this.#settings;
    let lacking = this.queued + 1 - maxQueued;
    let lackingBytes = this.#sizeBytes + newcomer.request.sizeBytes - maxQueuedBytes;
    const chosen: WaitingRequest<Target>[] = [];
    for (const waiting of this.#preemptable(newcomer)) {
      if (lacking <= 0 && lackingBytes <= 0) break;
      chosen.push(waiting);
      lacking -= 1;
      lackingBytes -= waiting.request.sizeBytes;
    }
    if (lacking > 0 || lackingBytes > 0) return false;
    for (const waiting of chosen) {
      // Refusing one may make the client of another leave.
      if (!waiting.isWaiting) continue;
      this.#take(waiting);
      this.#refuse(waiting, "preempted");
    }
    return true;
  }

  /** Queued requests that give way to a newcomer: of lower classes, the lowest first, then of busier tenants of its own. */
  *#preemptable({ serviceClass, request }: WaitingRequest<Target>): Iterable<WaitingRequest<Target>> {
    for (let rank = this.#classes.length - 1; rank > serviceClass.rank; rank--) {
      yield* this.#classes[rank]!.queue.latestFirst();
    }
    yield* serviceClass.queue.overShareOf(request.tenant);
  }

  #refuse(waiting: WaitingRequest<Target>, reason: ShedReason): void {
    waiting.serviceClass.meters.shed(reason);
    const waitS = (reason === "no_engine" ? this.#holdMs() : this.#predictMs(waiting)) / 1_000;
    const retryAfterSeconds = Math.min(retryBoundsS.most, Math.max(retryBoundsS.least, waitS));
    const code = refusals[reason] ?? "queue_full";
    waiting.listener.refused(new EspalierError(code, undefined, { retryAfterSeconds }));
  }

  #scan(): void {
    this.#mustRescan = this.#isScanning;
    if (this.#isScanning) return;
    this.#isScanning = true;
    try {
      this.#dropOverdue();
      do {
        this.#mustRescan = false;
        this.#dispatchOpen();
      } while (this.#mustRescan);
    } finally {
      this.#isScanning = false;
    }
  }

  #dropOverdue(): void {
    const nowMs = this.#clock.nowMs();
    for (const { queue } of this.#classes) {
      for (const waiting of queue.overdue(nowMs)) {
        if (!waiting.isWaiting) continue;
        this.#take(waiting);
        if (waiting.goByMs <= nowMs ? this.#demote(waiting) : this.#holdOn(waiting, nowMs)) this.#add(waiting);
      }
    }
  }

  #dispatchOpen(): void {
    const nowMs = this.#clock.nowMs();
    const scans = new Map(this.#classes.map(({ queue }) => [queue, new Map() as ScanState]));
    // A request behind one that waits for its deadline must leave engines as idle as that deadline needs them.
    let maxPendingMs = Number.POSITIVE_INFINITY;
    const canGo = (queue: ClassQueue<WaitingRequest<Target>>): boolean => {
      const first = queue.next(scans.get(queue)!, nowMs);
      if (!first) return false;
      // Requests of a pool share its targets: if all are saturated, so is a request's required target.
      const { waitsForEngine } = first;
      const wanted = { ...queue.settings, maxPendingMs, onlyEngine: undefined, waitsForEngine };
      return this.#unsaturated.find(first.listener.targets(), wanted, nowMs) !== undefined;
    };
    for (let tried = 0; tried < maxScanned && this.queued > 0; tried++) {
      const queue = this.#turns.next(canGo, nowMs);
      const scan = queue && scans.get(queue);
      const waiting = scan && queue.next(scan, nowMs);
      if (!waiting) {
        this.#backoff.reset();
        return;
      }
      const { tenant, onlyEngine } = waiting.request;
      const wanted = waiting.within(maxPendingMs);
      const all = waiting.listener.targets();
      const targets = this.#unsaturated.find(all, wanted, nowMs);
      if (targets && this.#shouldBackOff(waiting, targets, nowMs)) return;
      if (targets) {
        waiting.excluded = this.#unsaturated.excluded(all, targets, wanted);
        this.#dispatch(waiting, targets, nowMs);
      } else {
        if (onlyEngine === undefined) maxPendingMs = Math.min(maxPendingMs, waiting.maxPendingMs);
        scan.set(tenant, (scan.get(tenant) ?? 0) + 1);
      }
    }
  }

  #shouldBackOff(waiting: WaitingRequest<Target>, targets: readonly Target[], nowMs: number) {
    const { serviceClass, request, uncachedTokens } = waiting;
    const { name: className, queue } = serviceClass;
    const { tenant } = request;
    const virtualTokens = queue.served.virtualTokens(tenant, nowMs);
    const keyMs = queue.keyOf(waiting);
    return this.#backoff.shouldBackOff({ className, tenant, keyMs, virtualTokens, uncachedTokens, targets }, nowMs);
  }

  #dispatch(waiting: WaitingRequest<Target>, targets: readonly Target[], nowMs: number): void {
    this.#take(waiting);
    this.#drain.left(waiting.uncachedTokens, nowMs);
    waiting.waitedMs = nowMs - waiting.arrivedMs;
    waiting.serviceClass.meters.waited(waiting.waitedMs);
    waiting.listener.admitted(targets, waiting);
  }
}
