import type { Cancel, Transport } from "@espalier/core";
import { type Backend, type BackendDescription, describeMember, PeerRates, Readiness } from "./exchange/backend.ts";
import { Exchange } from "./exchange/exchange.ts";
import type { ExchangeLimits } from "./exchange/exchange-parts.ts";
import { noteCapability } from "./exchange/relay-carrier.ts";
import type { DialFailure, Link, LinkLimits, LinkObserver, ProcessPorts } from "./link/link.ts";
import { type LinkSecurity, Links } from "./link/links.ts";
import { Membership, type MembershipChange, type MembershipLimits } from "./membership/membership.ts";
import { regionCapability } from "./membership/membership-frames.ts";
import { createLoopLag, type LoopLag } from "./membership/process-time.ts";
import type { Member, ReplicaPorts } from "./replica-ports.ts";
import { createDialList, type FoundSeeds, resolveHost, Seeds } from "./seeds/seeds.ts";
import { subscribe } from "./subscribe.ts";
import type { Channel, LinkEnd } from "./wire/link-frames.ts";

/** How long a router looks for peers before it continues without them. */
export const defaultGraceMs = 3_000;
const ratesPeriodMs = 1_000;
/**
 * A restarted router whose epoch peers have seen raises it by a random amount up to this. A peer that refused it may
 * not know of another run that was refused for the same reason, and two runs with one epoch would write one journal.
 */
const epochSpreadMs = 65_536;
/** How many addresses whose first dial was answered are remembered: as many as links may dial. */
const maxAnswered = 256;
export interface MeshOptions extends ProcessPorts {
  readonly replica: ReplicaPorts;
  /** The mesh starts and stops it. */
  readonly transport: Transport;
  /**
   * Where others can dial this router, if that is not where the transport listens.
   *
   * @param listening where the transport listens, `host:port`
   */
  readonly advertise?: (listening: string) => string;
  /** Routers with another cluster name are refused, and so are those with another seed or block size. */
  readonly cluster: string;
  readonly fleetSeed: string;
  readonly blockSizeTokens: number;
  /** Where this router is; undefined if that is not said. */
  readonly region?: string | undefined;
  readonly security: LinkSecurity;
  /** `host:port` each; a name may have many addresses. */
  readonly seeds: readonly string[];
  /** Seeds that come and go. Their finder is started and stopped apart from the mesh. */
  readonly found?: FoundSeeds;
  /** All addresses of a name. Default: the system's resolver. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
  /** How long peers may take to be found, in milliseconds. */
  readonly graceMs?: number;
  /** CPU time that this process has used, in milliseconds. Default: none, as in virtual time. */
  readonly cpuMs?: () => number;
  /**
   * Whether the medium that carries all connections is away, or was moments ago: no silence says anything then, and
   * members stay as they were. Default: never.
   */
  readonly isCutOff?: () => boolean;
  readonly linkLimits?: Partial<LinkLimits>;
  readonly membershipLimits?: Partial<MembershipLimits>;
  readonly exchangeLimits?: Partial<ExchangeLimits>;
}

/**
 * Joins a replica to those of other routers. `start` fails with what the transport throws, and with `mesh_insecure`
 * when strangers could connect.
 *
 * @throws RangeError for a seed that is not `host:port`, and for limits that cannot work
 */
export function createMesh(options: MeshOptions): Mesh {
  return new Mesh(options);
}

/** Routers that share what they know over links of their own. */
export class Mesh implements Backend, LinkObserver {
  readonly kind = "mesh";
  readonly #options: MeshOptions;
  readonly #links: Links;
  readonly #membership: Membership;
  readonly #seeds: Seeds;
  readonly #exchange: Exchange;
  readonly #readiness: Readiness;
  readonly #rates: PeerRates;
  readonly #lag: LoopLag;
  /** Seeds that have answered once, by a link or by a failure. */
  readonly #answered = new Set<string>();
  readonly #listeners = new Set<() => void>();
  #cancels: Cancel[] = [];

  constructor(options: MeshOptions) {
    this.#options = options;
    const { replica, clock, linkLimits, membershipLimits, exchangeLimits } = options;
    this.#lag = createLoopLag(options);
    this.#rates = new PeerRates(clock);
    this.#links = new Links({
      ...options,
      identity: () => this.#identity(),
      observer: this,
      highestEpoch: (router) => Math.max(replica.highestEpoch(router), this.#membership.epochOf(router)),
      onEpochBehind: (known) => replica.renewEpoch(known + options.random.integer(epochSpreadMs)),
      ...(linkLimits && { limits: linkLimits }),
    });
    const dials = createDialList(this.#links);
    this.#membership = new Membership({
      ...options,
      self: () => replica.origin,
      address: () => this.address || undefined,
      lagMs: () => this.#lag.lagMs(),
      cpuMs: options.cpuMs ?? (() => 0),
      ...dials.user(),
      ...(membershipLimits && { limits: membershipLimits }),
    });
    this.#seeds = new Seeds({
      ...options,
      resolve: options.resolve ?? resolveHost,
      ...dials.user(),
      isSelf: (address) => address === this.address,
      isReached: (address) => this.#membership.isReached(address),
    });
    this.#exchange = new Exchange({
      ...options,
      peers: {
        get self() {
          return replica.origin;
        },
        hears: (router, other) => this.#membership.linksOf(router).has(other),
        epochOf: (router) => this.#membership.member(router)?.origin.epoch,
      },
      mayComeMore: () => this.#readiness.isLooking || (this.#readiness.mayWait && this.#lacksLink()),
      ...(exchangeLimits && { limits: exchangeLimits }),
    });
    this.#readiness = new Readiness({
      clock,
      graceMs: options.graceMs ?? defaultGraceMs,
      hasTriedAll: () => this.#hasTriedAll(),
      conditions: this.#exchange.conditions,
    });
  }

  /** Where peers can reach this router, `host:port`; empty before the start. */
  get address(): string {
    const listening = this.#links.address;
    return listening === "" ? "" : (this.#options.advertise?.(listening) ?? listening);
  }

  get waitingFor(): readonly string[] {
    return this.#readiness.waitingFor;
  }

  async start(): Promise<void> {
    this.#readiness.start();
    await this.#links.start();
    this.#cancels = [
      this.#membership.onChange((change) => this.#memberChanged(change)),
      this.#options.scheduler.every(ratesPeriodMs, () => this.#rates.sample(this.#links.links())),
    ];
    this.#exchange.start();
    this.#membership.start();
    this.#seeds.start();
  }

  async stop(): Promise<void> {
    for (const cancel of this.#cancels.splice(0)) cancel();
    this.#seeds.stop();
    this.#membership.stop();
    await this.#links.stop();
    this.#exchange.stop();
    this.#lag.stop();
  }

  async leave(): Promise<void> {
    this.#membership.leave();
  }

  members(): readonly Member[] {
    return this.#membership.members();
  }

  onMembers(listener: () => void): Cancel {
    return subscribe(this.#listeners, listener);
  }

  /** See `Links`. */
  setSecrets(secrets: readonly string[]): void {
    this.#links.setSecrets(secrets);
  }

  setDraining(isDraining: boolean): void {
    this.#membership.setDraining(isDraining);
  }

  setUnreachable(targets: readonly string[]): void {
    this.#membership.setUnreachable(targets);
  }

  get bufferedBytes(): number {
    let bytes = 0;
    for (const link of this.#links.links()) bytes += link.bufferedBytes;
    return bytes;
  }

  describe(): BackendDescription {
    const links = new Map(this.#links.links().map((link) => [link.peer.origin.router, link]));
    const members = this.members().map((member) => {
      const { router } = member.origin;
      const link = links.get(router);
      const lagMs = link && this.#exchange.lagMs(link);
      const rates = link && this.#rates.of(link);
      return describeMember({ member, link, rates, lagMs, address: this.#membership.addressOf(router) });
    });
    const refused = this.#links.refused();
    return { kind: "mesh", address: this.address || null, members, refused, waitingFor: this.waitingFor };
  }

  /** Membership may close an unwanted link; nothing is exchanged over it then. */
  up(link: Link): void {
    if (link.peer.address !== undefined) this.#answer(link.peer.address);
    this.#membership.linkUp(link);
    if (this.#links.links().includes(link)) this.#exchange.linkUp(link);
  }

  down(link: Link, why: LinkEnd): void {
    this.#exchange.linkDown(link);
    this.#membership.linkDown(link, why);
  }

  frame(link: Link, channel: Channel, frame: Uint8Array): void {
    if (channel === "membership") {
      this.#membership.receive(link, frame);
      return;
    }
    this.#membership.heard(link);
    this.#exchange.frame(link, channel, frame);
  }

  drained(link: Link, channel: Channel): void {
    this.#exchange.drained(link, channel);
  }

  dialFailed(address: string, why: DialFailure): void {
    this.#answer(address);
    this.#membership.dialFailed(address, why);
    this.#seeds.dialFailed(address, why);
  }

  #identity() {
    const { replica, cluster, fleetSeed, blockSizeTokens } = this.#options;
    const { origin, load } = replica;
    const added = load.addition === undefined ? [] : [load.addition.capability];
    const capabilities = [noteCapability, regionCapability, ...added];
    return { origin, address: this.address || undefined, cluster, fleetSeed, blockSizeTokens, capabilities };
  }

  #answer(address: string): void {
    if (this.#answered.size < maxAnswered) this.#answered.add(address);
  }

  #hasTriedAll(): boolean {
    return this.#seeds.isResolved && this.#seeds.addresses().every((address) => this.#answered.has(address));
  }

  /** Whether a living router has no link now: of two that dial each other at once one link ends, and others break. */
  #lacksLink(): boolean {
    const linked = new Set(this.#links.links().map(({ peer }) => peer.origin.router));
    const isLiving = ({ state }: Member): boolean => state === "alive" || state === "suspect";
    return this.members().some((member) => isLiving(member) && !linked.has(member.origin.router));
  }

  #memberChanged({ member, before, isForgotten }: MembershipChange): void {
    const isGone = member.state === "down" || member.state === "left";
    if (isGone && (member.state !== before || isForgotten)) this.#exchange.memberGone(member.origin);
    for (const listener of this.#listeners) listener();
  }
}
