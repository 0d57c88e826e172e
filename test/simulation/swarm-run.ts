import { createSeededRandom } from "@espalier/core";
import { SimFleet, type SimRequest } from "@espalier/simulator";
import { differences, unsettled } from "./convergence.ts";
import { Conversations } from "./conversations.ts";
import { createCountingMeter } from "./counting-meter.ts";
import { EngineTruth } from "./engine-truth.ts";
import { createEventLog, logged } from "./event-log.ts";
import { faultKindNames, faultKinds } from "./fault-kinds.ts";
import { CountedCuts, type FaultWorld } from "./fault-world.ts";
import { FuzzyStates } from "./fuzzy-states.ts";
import { liveRouters } from "./live-router.ts";
import { probeQuality } from "./quality.ts";
import { ReadyWatch } from "./ready-watch.ts";
import { noCounts, type RunCounts } from "./run-counts.ts";
import { safetyProblems, sizeProblems } from "./safety.ts";
import type { Swarm } from "./swarm.ts";
import { createTracingLogger } from "./tracing-logger.ts";
import { watchPorts } from "./watch-ports.ts";

export interface SwarmOutcome {
  readonly hash: string;
  readonly events: number;
  readonly counts: RunCounts;
  /** Virtual time that it took after everything was healed until all agreed. */
  readonly convergedMs: number;
}

/** Time between two looks at the invariants. */
const stepMs = 10;
/** Steps between two looks at what grows slowly. */
const sizeSteps = 10;
/** After everything is healed: for members and roles to settle, for answers to end, and for all to agree. */
const settleMs = 20_000;
const drainMs = 60_000;
const agreeMs = 10_000;
/** An engine that is up for so long is known to be so: three probes of its health, and a little. */
const knownUpMs = 6_500;
/** Number of the first request that goes past the routers. */
const firstLoneRequest = 2_000_000;
/** Signs that routers, which are all honest here, have sent each other what is not allowed. */
const forbiddenCounters = [
  "espalier_mesh_invalid_frames_total",
  "espalier_mesh_refused_updates_total",
  "espalier_mesh_members_refused_total",
  "espalier_placements_invalid_items_total",
];

/** A request of two blocks that nobody else sends. */
function loneRequest(engine: number): SimRequest {
  const chain = Uint32Array.of(2 * engine, 0xffff_ffff, 2 * engine + 1, 0xffff_ffff);
  return { index: firstLoneRequest + engine, session: -1, turn: 0, promptTokens: 33, outputTokens: 1, chain };
}

/** One run of a swarm. */
export class SwarmRun {
  readonly #swarm: Swarm;
  readonly #trace: (line: string) => void;
  readonly #fleet: SimFleet;
  readonly #truth: EngineTruth;
  readonly #log = createEventLog();
  readonly #meter = createCountingMeter();
  readonly #counts = noCounts();
  readonly #ready = new ReadyWatch();
  readonly #fuzzy = new FuzzyStates();
  readonly #conversations: Conversations;
  readonly #worlds: FaultWorld[] = [];
  readonly #roles = new Map<string, string>();
  readonly #upSinceMs: number[];
  readonly #problems: string[] = [];
  #steps = 0;
  #isSending = true;
  #underWay = 0;

  /** @param trace takes what happens, in words */
  constructor(swarm: Swarm, trace: (line: string) => void = () => {}) {
    this.#swarm = swarm;
    this.#trace = (line) => trace(`${this.#fleet.time.clock.nowMs().toFixed(1)} ${line}`);
    const { seed, routers, spareRouters, engines, parameters, policy, timing } = swarm;
    const duplicates = createSeededRandom(seed * 31 + 5);
    this.#fleet = new SimFleet({
      ...{ engines, parameters, policy, timing, seed },
      ...{ routers: routers + spareRouters, startedRouters: routers, sharing: "mesh", links: "real" },
      observe: (router) => ({
        logger: createTracingLogger((line) => this.#trace(`${router}: ${line}`)),
        meter: this.#meter,
      }),
      wrapPorts: (ports, router) =>
        watchPorts(ports, {
          random: swarm.kinds.includes("duplicates") ? duplicates : undefined,
          resent: () => this.#counts.duplicates++,
          applied: ({ from, to }) => this.#note(logged.document, router, from, to),
          loadReceived: ({ length }) => this.#note(logged.load, router, length),
          imported: () => this.#fuzzy.imported(this.#fleet, router),
        }),
    });
    this.#truth = new EngineTruth(this.#fleet.engines);
    this.#upSinceMs = this.#fleet.engines.map(() => 0);
    this.#conversations = new Conversations({
      random: createSeededRandom(seed * 31 + 1),
      count: swarm.conversations,
      maxTokens: Math.min(parameters.maxModelLength, (parameters.blockCount - 2) * parameters.blockSize),
    });
    this.#watchEngines();
  }

  /** @throws Error saying what does not hold */
  async run(): Promise<SwarmOutcome> {
    const fleet = this.#fleet;
    await fleet.start();
    const arrivals = createSeededRandom(this.#swarm.seed * 31 + 2);
    const sendOn = (): void => {
      if (!this.#isSending) return;
      this.#send();
      fleet.time.scheduler.after((-Math.log(1 - arrivals.float()) * 1_000) / this.#swarm.requestsPerS, sendOn);
    };
    sendOn();
    this.#beginFaults();
    await this.#pass(this.#swarm.durationMs);
    const healedMs = this.#heal();
    this.#trace("everything is healed");
    await this.#until(() => unsettled(fleet), settleMs);
    this.#isSending = false;
    await this.#until(() => (this.#underWay === 0 ? [] : [`${this.#underWay} requests have no end`]), drainMs);
    await this.#tellGaps();
    await this.#until(() => differences(fleet, this.#truth), agreeMs);
    const convergedMs = fleet.time.clock.nowMs() - healedMs;
    await this.#pass(Math.max(0, knownUpMs - convergedMs));
    await this.#probe();
    this.#countMetrics();
    const outcome = { hash: this.#log.digest(), events: this.#log.events, counts: this.#counts, convergedMs };
    await fleet.stop();
    return outcome;
  }

  #note(kind: (typeof logged)[keyof typeof logged], one?: number, other?: number, more?: number): void {
    this.#log.add(this.#fleet.time.clock.nowMs(), kind, one, other, more);
  }

  #watchEngines(): void {
    const { engines, time } = this.#fleet;
    for (const engine of engines) {
      engine.onMessage(({ sequence, checksum }) => this.#note(logged.published, engine.number, sequence, checksum));
      engine.onEpoch(() => {
        this.#upSinceMs[engine.number] = engine.isUp ? time.clock.nowMs() : Number.POSITIVE_INFINITY;
      });
    }
  }

  #beginFaults(): void {
    const { seed, kinds, paceMs, routers, spareRouters } = this.#swarm;
    const fleet = this.#fleet;
    const cuts = new CountedCuts(fleet);
    const spares = Array.from({ length: spareRouters }, (_, at) => routers + at);
    const replaced = new Set<number>();
    const paused = new Set<number>();
    for (const kind of kinds) {
      const number = faultKindNames.indexOf(kind);
      const world: FaultWorld = {
        ...{ fleet, cuts, spares, replaced, paused, counts: this.#counts, paceMs: paceMs[kind], isOver: false },
        scheduler: fleet.time.scheduler,
        random: createSeededRandom(seed * 64 + number),
        note: (...numbers) => {
          this.#trace(`fault ${kind} ${numbers.join(" ")}`);
          this.#note(logged.fault, number, numbers[0], numbers[1]);
        },
      };
      this.#worlds.push(world);
      faultKinds[kind](world);
    }
  }

  /** Undoes all that went wrong. @returns when */
  #heal(): number {
    const fleet = this.#fleet;
    for (const world of this.#worlds) world.isOver = true;
    const { replaced, paused } = this.#worlds[0] ?? { replaced: new Set<number>(), paused: new Set<number>() };
    this.#counts.pausesSurvived += [...paused].filter((router) => fleet.isRouterUp(router)).length;
    fleet.heal();
    fleet.setLinkSpeed({ delayMs: this.#swarm.timing.linkDelayMs, jitterMs: 0 });
    for (const { number } of fleet.engines) {
      fleet.setReplay(number, true);
      fleet.startEngine(number);
    }
    for (let router = 0; router < this.#swarm.routers; router++) if (!replaced.has(router)) this.#startLater(router);
    return fleet.time.clock.nowMs();
  }

  /** A router that is about to leave ends first. */
  #startLater(router: number): void {
    const { routerNodes, time } = this.#fleet;
    if (!this.#fleet.isRouterUp(router)) this.#fleet.startRouter(router);
    else if (routerNodes[router]!.isLeaving) time.scheduler.after(100, () => this.#startLater(router));
  }

  #send(): void {
    const request = this.#conversations.next();
    if (!request) return;
    this.#underWay++;
    this.#counts.requests++;
    this.#note(logged.sent, request.index, request.promptTokens);
    this.#fleet.send(request, ({ engine, firstTokenMs, cachedTokens, error, isSpill }, router) => {
      this.#underWay--;
      this.#counts.retried += Number(isSpill);
      this.#counts.failed += Number(error !== undefined);
      this.#note(logged.answered, request.index, router * 256 + engine, cachedTokens);
      this.#note(logged.answered, firstTokenMs);
      this.#conversations.ended(request, error === undefined);
      this.#checkAnswer(request, router, error);
    });
  }

  /** No request may fail for want of an engine while its router can know of one. */
  #checkAnswer({ index }: SimRequest, router: number, error: string | undefined): void {
    const nowMs = this.#fleet.time.clock.nowMs();
    if (!(nowMs - this.#ready.runsSinceMs(router) > knownUpMs)) return;
    const isOneUp = this.#upSinceMs.some((sinceMs) => nowMs - sinceMs > knownUpMs);
    if (error === "no engine is available" && isOneUp) this.#problems.push(`request ${index} found no engine`);
  }

  async #pass(durationMs: number): Promise<void> {
    const endMs = this.#fleet.time.clock.nowMs() + durationMs;
    while (this.#fleet.time.clock.nowMs() < endMs) await this.#step();
  }

  async #step(): Promise<void> {
    const { clock } = this.#fleet.time;
    await this.#fleet.run(clock.nowMs() + stepMs);
    this.#noteRoles();
    const problems = [
      ...this.#problems.splice(0),
      ...safetyProblems(this.#fleet, this.#truth, this.#fuzzy),
      ...this.#forbidden(),
    ];
    problems.push(...this.#ready.problems(this.#fleet));
    if (++this.#steps % sizeSteps === 0) problems.push(...sizeProblems(this.#fleet));
    if (problems.length > 0) throw new Error(`at ${clock.nowMs()} ms: ${problems.slice(0, 6).join("; ")}`);
  }

  #forbidden(): string[] {
    return forbiddenCounters.filter((name) => this.#meter.total(name) > 0).map((name) => `${name} was counted`);
  }

  /** @throws Error with what is left when that does not become nothing in time */
  async #until(left: () => readonly string[], timeoutMs: number): Promise<void> {
    const endMs = this.#fleet.time.clock.nowMs() + timeoutMs;
    while (left().length > 0) {
      if (this.#fleet.time.clock.nowMs() >= endMs) {
        throw new Error(`not within ${timeoutMs} ms: ${left().slice(0, 8).join("; ")}`);
      }
      for (let steps = 0; steps < 10; steps++) await this.#step();
    }
  }

  /** Nobody can know that the last message of an engine was lost before the next one comes. */
  async #tellGaps(): Promise<void> {
    for (const engine of this.#fleet.engines) {
      const request = loneRequest(engine.number);
      this.#underWay++;
      const done = (): void => {
        this.#underWay--;
      };
      engine.submit(request, { firstToken() {}, progress() {}, finished: done, lost: done });
    }
    await this.#until(() => (this.#underWay === 0 ? [] : ["an engine hangs"]), drainMs);
  }

  #noteRoles(): void {
    for (const { number, view } of liveRouters(this.#fleet)) {
      for (const { key, number: engine } of this.#fleet.engines) {
        const role = view.tier.ownership.roleOf(key);
        const place = `${number} ${engine}`;
        if ((this.#roles.get(place) ?? "none") === role) continue;
        this.#roles.set(place, role);
        this.#trace(`${number}: ${role} of ${key}`);
        this.#note(logged.role, number, engine, ["none", "backup", "owner"].indexOf(role));
        if (role === "owner") this.#counts.takeovers++;
      }
    }
  }

  async #probe(): Promise<void> {
    const problem = await probeQuality(this.#fleet, this.#swarm);
    if (problem !== undefined) throw new Error(problem);
    this.#counts.probedQuality++;
  }

  #countMetrics(): void {
    const counts = this.#counts;
    const { engines, events } = this.#fleet;
    counts.evictions += this.#truth.evictions;
    counts.resyncs += this.#meter.total("espalier_mesh_resyncs_total");
    counts.refolds += this.#meter.total("espalier_fold_refolds_total");
    counts.reloads += this.#meter.total("espalier_fold_reloads_total");
    counts.snapshots += this.#meter.total("espalier_mesh_snapshots_total");
    counts.expiredLeases += this.#meter.total("espalier_load_leases_expired_total");
    for (const { number, messages, key } of engines) {
      const wasLost = messages.some(({ sequence }) => events.isLost(number, sequence));
      const fold = liveRouters(this.#fleet)[0]?.view.tier.replica.fold.state(key);
      if (wasLost && fold?.isComplete) counts.replays++;
    }
  }
}
