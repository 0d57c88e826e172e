import { hashString } from "@espalier/policies";
import type { SimRequest } from "../clients/workload.ts";
import type { FrontOutcome } from "../fleet/front.ts";
import type { CreateRival, Rival, RivalParts } from "./rival.ts";
import { createSeats, leastOf, type Seat, SentPrefixes, sendToSeat } from "./seats.ts";

/**
 * SkyWalker (arXiv 2505.24095, EuroSys 2026; skypilot-org/skypilot, branch `serve-multi-region-lb`, bbbe983:
 * `sky/serve/load_balancer.py` and `load_balancing_policies.py`, with the options of `sky/lbbench/launch_systems.sh` for it). Each region
 * has a balancer. It sends the head of its queue to an engine of its region that had no queue of its own when it was last
 * probed, else to the balancer of another region that has such engines and no longer queue, else it waits.
 */
const skywalker = {
  /** A queue's head is looked at so often. */
  queueMs: 10,
  /** Engines and other balancers are probed so often. */
  probeMs: 100,
  /** Other regions take nothing beyond so many requests in their queue. */
  mostQueued: 10,
  /** A prefix counts from this share of the prompt on; else the least loaded takes it. */
  matchShare: 0.5,
} as const;

/** Where a balancer can send, and what it has sent there. */
interface Place {
  readonly prefixes: SentPrefixes;
  readonly inFlight: number;
}

/** The longest prefix, if it is half of the prompt or more, and of those with it the least loaded; else the least loaded. */
function byPrefix<Item extends Place>(request: SimRequest, places: readonly Item[]): Item | undefined {
  const matched = places.map(({ prefixes }) => prefixes.matchedTokens(request));
  const most = Math.max(0, ...matched);
  const holders = places.filter((_, at) => matched[at] === most);
  const isMatch = most > skywalker.matchShare * request.promptTokens;
  return leastOf(isMatch ? holders : places, ({ inFlight }) => inFlight);
}

interface Entry {
  readonly request: SimRequest;
  /** The client's region, and those of the balancers up to this one. */
  readonly path: readonly number[];
  readonly ended: (outcome: FrontOutcome) => void;
  /** Tells the balancer before that it is over. */
  readonly done: () => void;
}

class Peer implements Place {
  readonly balancer: Balancer;
  readonly prefixes = new SentPrefixes();
  inFlight = 0;
  isAvailable = true;

  constructor(balancer: Balancer) {
    this.balancer = balancer;
  }
}

class Balancer {
  readonly region: number;
  readonly #parts: RivalParts;
  readonly #seats: readonly Seat[];
  #peers: readonly Peer[] = [];
  readonly #queue: Entry[] = [];

  constructor(parts: RivalParts, region: number, seats: readonly Seat[]) {
    this.region = region;
    this.#parts = parts;
    this.#seats = seats;
    parts.scheduler.every(skywalker.queueMs, () => this.#next());
    parts.scheduler.every(skywalker.probeMs, () => this.#probe());
  }

  /** @param balancers of all other regions; none for one that keeps to its own */
  connect(balancers: readonly Balancer[]): void {
    this.#peers = balancers.map((balancer) => new Peer(balancer));
  }

  take(entry: Entry): void {
    this.#queue.push(entry);
  }

  get queued(): number {
    return this.#queue.length;
  }

  get hasRoom(): boolean {
    return this.#seats.some(({ stillWaiting }) => stillWaiting === 0);
  }

  #probe(): void {
    for (const seat of this.#seats) seat.read();
    const { placement, scheduler } = this.#parts;
    const ownQueue = this.queued;
    for (const peer of this.#peers) {
      const { queued, hasRoom, region } = peer.balancer;
      const isAvailable = hasRoom && queued <= ownQueue && queued <= skywalker.mostQueued;
      scheduler.after(placement.delayMs(region, this.region), () => {
        peer.isAvailable = isAvailable;
      });
    }
  }

  #next(): void {
    const entry = this.#queue[0];
    if (entry === undefined || !(this.#sendHere(entry) || this.#push(entry))) return;
    this.#queue.shift();
  }

  #sendHere({ request, path, ended, done }: Entry): boolean {
    const available = this.#seats.filter(({ stillWaiting }) => stillWaiting === 0);
    const seat = byPrefix(request, available);
    if (seat === undefined) return false;
    const predictedTokens = seat.prefixes.matchedTokens(request);
    seat.prefixes.add(request);
    sendToSeat(this.#parts, request, { seat, path, predictedTokens, done }, ended);
    return true;
  }

  /** What came from another region stays. */
  #push({ request, path, ended, done }: Entry): boolean {
    if (path.length > 2) return false;
    const peer = byPrefix(
      request,
      this.#peers.filter(({ isAvailable }) => isAvailable),
    );
    if (peer === undefined) return false;
    peer.prefixes.add(request);
    peer.inFlight += 1;
    const { placement, scheduler } = this.#parts;
    const wayMs = placement.delayMs(this.region, peer.balancer.region);
    const there = {
      ...{ request, path: [...path, peer.balancer.region], ended },
      done: () => {
        scheduler.after(wayMs, () => {
          peer.inFlight -= 1;
          done();
        });
      },
    };
    scheduler.after(wayMs, () => peer.balancer.take(there));
    return true;
  }
}

function createSkyWalker(parts: RivalParts, isCrossRegion: boolean): Rival {
  const seats = createSeats(parts);
  const regions = Array.from({ length: parts.placement.regions }, (_, region) => region);
  const balancers = regions.map(
    (region) =>
      new Balancer(
        parts,
        region,
        seats.filter((seat) => seat.region === region),
      ),
  );
  if (isCrossRegion) {
    for (const balancer of balancers) balancer.connect(balancers.filter((other) => other !== balancer));
  }
  return {
    handle(request, region, ended) {
      parts.scheduler.after(parts.placement.clientDelayMs(region, region), () =>
        balancers[region]!.take({ request, path: [region, region], ended, done() {} }),
      );
    },
  };
}

/** The baselines run as one balancer for all regions, in the first one (`single_lb_clusters`). They hold nothing back. */
const center = 0;

type Choose = (request: SimRequest, seats: readonly Seat[]) => Seat;

function createCentral(parts: RivalParts, choose: Choose): Rival {
  const seats = createSeats(parts);
  return {
    handle(request, region, ended) {
      parts.scheduler.after(parts.placement.clientDelayMs(region, center), () => {
        const seat = choose(request, seats);
        const predictedTokens = seat.prefixes.matchedTokens(request);
        seat.prefixes.add(request);
        seat.sentTokens += request.promptTokens - predictedTokens;
        sendToSeat(parts, request, { seat, path: [region, center], predictedTokens }, ended);
      });
    },
  };
}

function roundRobin(): Choose {
  let next = 0;
  return (_, seats) => seats[next++ % seats.length]!;
}

const leastLoad: Choose = (_, seats) => leastOf(seats, ({ inFlight }) => inFlight)!;

/** By the user. */
const consistentHashing: Choose = ({ session, tenant = `session-${session}` }, seats) =>
  seats[hashString(tenant, 0) % seats.length]!;

/** SGLang's router of its time with its defaults: longest prefix, else the smallest tree; the least loaded when far apart. */
const sglang: Choose = (request, seats) => {
  const loads = seats.map(({ inFlight }) => inFlight);
  const [least, most] = [Math.min(...loads), Math.max(...loads)];
  if (most - least > 32 && most > 1.0001 * least) return leastLoad(request, seats);
  const matched = seats.map(({ prefixes }) => prefixes.matchedTokens(request));
  const longest = Math.max(...matched);
  if (longest > 0.5 * request.promptTokens) return seats[matched.indexOf(longest)]!;
  return leastOf(seats, ({ sentTokens }) => sentTokens)!;
};

export const skywalkerRivals: Readonly<Record<string, CreateRival>> = {
  skywalker: (parts) => createSkyWalker(parts, true),
  skywalker_region_local: (parts) => createSkyWalker(parts, false),
  skywalker_round_robin: (parts) => createCentral(parts, roundRobin()),
  skywalker_least_load: (parts) => createCentral(parts, leastLoad),
  skywalker_hash: (parts) => createCentral(parts, consistentHashing),
  skywalker_sglang: (parts) => createCentral(parts, sglang),
};
