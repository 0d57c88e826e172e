import {
  type Cancel,
  type Clock,
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  EspalierError,
  isLoopback,
  type Logger,
  plainHost,
  type RouterId,
  type Scheduler,
  type Startable,
  type Transport,
} from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import { type LinkEnd, maxSecrets, type Rejection, type VersionRange } from "../wire/link-frames.ts";
import { createNonce } from "../wire/secure-nonce.ts";
import { Dialer, type DialTarget } from "./dialer.ts";
import { guardObserver } from "./guard-observer.ts";
import { type LocalIdentity, Session, type SessionFailure } from "./handshake.ts";
import {
  type DialFailure,
  defaultLinkLimits,
  type Link,
  type LinkLimits,
  type LinkObserver,
  type PeerIdentity,
  type ProcessPorts,
} from "./link.ts";
import { type Candidate, LinkTable } from "./link-table.ts";
import { createLinkMeters, creditBytes, type LinkMeters, PeerLink } from "./peer-link.ts";

/** What keeps strangers out. Without either, the transport may listen on this machine only. */
export type LinkSecurity =
  /** One to four, the own one first: links are made with routers that know one of them. */
  | { readonly kind: "secret"; readonly secrets: readonly string[] }
  /** The transport takes only peers with a certificate. */
  | { readonly kind: "mutual-tls" }
  /** Redis lets in only those who know its password. */
  | { readonly kind: "redis" }
  | { readonly kind: "insecure" };

export interface LinksOptions extends ProcessPorts {
  readonly transport: Transport;
  /** Called for every handshake, since the epoch may be renewed. */
  readonly identity: () => LocalIdentity;
  readonly security: LinkSecurity;
  readonly observer: LinkObserver;
  /** The router's highest known epoch, 0 for none. */
  readonly highestEpoch: (router: RouterId) => number;
  /** A peer that knows the secret knows a later epoch of this router, which should begin one that is later still. */
  readonly onEpochBehind: (knownEpoch: number) => void;
  readonly limits?: Partial<LinkLimits>;
  readonly versions?: VersionRange;
}

/** The versions of the protocol that this release speaks. */
export const protocolVersions: VersionRange = { min: 1, max: 1 };

/**
 * The links to all other routers: one for each, however many connections were tried. It owns the transport, and starts
 * and stops it.
 *
 * @throws RangeError for secrets and limits that cannot work. `start` throws `mesh_insecure` when strangers could
 *   connect.
 */
export class Links implements Startable {
  readonly #options: LinksOptions;
  readonly #limits: LinkLimits;
  readonly #meters: LinkMeters;
  readonly #rejects: RejectLog;
  readonly #table: LinkTable;
  readonly #dialer: Dialer;
  readonly #handshakes = new Set<Session>();
  readonly #renewal: LinkRenewal;
  #secrets: readonly string[];
  #isRunning = false;
  readonly #early = new Set<string>();

  constructor(options: LinksOptions) {
    const { clock, scheduler, random, logger, meter, identity, highestEpoch } = options;
    const limits = { ...defaultLinkLimits, ...options.limits };
    const { documents, bulk } = limits.windowBytes;
    if (Math.min(documents, bulk) < creditBytes)
      throw new RangeError(`a window must have ${creditBytes} bytes or more`);
    this.#secrets = options.security.kind === "secret" ? checkSecrets(options.security.secrets) : [""];
    this.#options = { ...options, observer: guardObserver(options.observer, options) };
    this.#limits = limits;
    this.#meters = createLinkMeters(meter);
    this.#rejects = new RejectLog({ logger, clock, meters: this.#meters });
    this.#table = new LinkTable({ clock, limits, highestEpoch, self: () => identity().origin.router });
    this.#renewal = new LinkRenewal({
      scheduler,
      links: () => this.#table.all(),
      counts: (secret) => this.#secrets.includes(secret),
    });
    this.#dialer = new Dialer({
      clock,
      scheduler,
      random,
      limits,
      isCovered: (target) => this.#isCovered(target),
      open: (target) => this.#open(target),
    });
  }

  /** Where others can reach this router, `host:port`; empty before the start. */
  get address(): string {
    return this.#options.transport.address;
  }

  async start(): Promise<void> {
    const { transport, security } = this.#options;
    transport.onConnection((connection) => this.#accept(connection));
    await transport.start();
    if (security.kind === "insecure" && !isLoopback(hostOf(transport.address))) {
      throw new EspalierError("mesh_insecure", `The mesh listens on ${transport.address} without a secret.`);
    }
    this.#isRunning = true;
    for (const address of this.#early) this.#dialer.add(address);
    this.#early.clear();
  }

  async stop(): Promise<void> {
    this.#isRunning = false;
    this.#dialer.stop();
    this.#renewal.stop();
    for (const session of [...this.#handshakes]) {
      session.abandon();
      this.#forgetSession(session);
    }
    for (const link of this.#table.all()) link.close("stopped");
    await this.#options.transport.stop();
  }

  /**
   * Keeps a link to the router at the address, until the address is forgotten.
   *
   * @returns false when too many addresses are dialed already
   */
  dial(address: string): boolean {
    if (this.#isRunning) return this.#dialer.add(address);
    if (this.#early.size >= this.#limits.maxAddresses) return this.#early.has(address);
    this.#early.add(address);
    return true;
  }

  /** Stops dialing; an existing link stays. */
  forget(address: string): void {
    this.#early.delete(address);
    this.#dialer.forget(address);
    for (const session of [...this.#handshakes]) {
      if (session.target?.address !== address) continue;
      session.abandon();
      this.#forgetSession(session);
    }
  }

  links(): readonly Link[] {
    return this.#table.all();
  }

  /** Handshakes that either end has refused of late, the latest first. */
  refused(): readonly RefusedPeer[] {
    return this.#rejects.list();
  }

  /**
   * Changes what other routers must know, where a secret authenticates them. Links to routers that have proved a secret
   * that does not count any more are ended one after the other, and made again where both ends know another secret.
   *
   * @throws RangeError for none, too many, or an empty one
   */
  setSecrets(secrets: readonly string[]): void {
    if (this.#options.security.kind !== "secret") throw new TypeError("mesh links are not authenticated: no secret");
    this.#secrets = checkSecrets(secrets);
    if (this.#isRunning) this.#renewal.begin();
  }

  #isCovered({ address, router }: DialTarget): boolean {
    if (router !== undefined && this.#table.has(router)) return true;
    return this.#table.all().some(({ peer }) => peer.address === address);
  }

  #open(target: DialTarget): void {
    let session: Session | undefined;
    this.#options.transport.dial(target.address, {
      opened: (connection) => {
        if (!this.#isRunning || target.isForgotten) {
          connection.terminate();
          return;
        }
        session = this.#session(connection, target);
        session.begin();
      },
      frame: (frame) => session?.frame(frame),
      drained: () => session?.drained(),
      closed: (end) => {
        if (session) session.closed(end);
        else this.#dialFailed(target, failureOf(end));
      },
    });
  }

  #accept(connection: Connection): ConnectionObserver {
    if (this.#isRunning) {
      const fromOutside = [...this.#handshakes].filter(({ role }) => role === "acceptor");
      // The oldest is dropped: a router needs a few round trips, so it gets through while strangers occupy all others.
      if (fromOutside.length >= this.#limits.maxHandshakes) {
        fromOutside[0]?.refuse("too-many-peers", "too many handshakes at once");
      }
      return this.#session(connection, undefined);
    }
    connection.terminate();
    return { frame: () => {}, drained: () => {}, closed: () => {} };
  }

  #session(connection: Connection, target: DialTarget | undefined): Session {
    const { scheduler, identity, versions } = this.#options;
    const session = new Session({
      connection,
      role: target ? "dialer" : "acceptor",
      target,
      scheduler,
      timeoutMs: this.#limits.handshakeTimeoutMs,
      handshake: {
        local: identity(),
        versions: versions ?? protocolVersions,
        secrets: this.#secrets,
        nonce: createNonce(),
        isOwnNonce: (nonce) => [...this.#handshakes].some((other) => Buffer.compare(other.nonce, nonce) === 0),
      },
      decide: (which, peer) => this.#decide(which, peer),
      onAccepted: (which) => {
        if (which.candidate) this.#table.agree(which.candidate);
      },
      onDone: (which, peer) => this.#done(which, peer),
      onFailed: (which, failure) => this.#failed(which, failure),
    });
    this.#handshakes.add(session);
    return session;
  }

  #decide(session: Session, peer: PeerIdentity): ReturnType<LinkTable["verdictOn"]> {
    if (session.target) session.target.router = peer.origin.router;
    const candidate: Candidate = { peer, dialedBy: session.target ? "us" : "them" };
    session.candidate = candidate;
    return this.#table.verdictOn(candidate);
  }

  #forgetSession(session: Session): void {
    this.#handshakes.delete(session);
    if (session.candidate) this.#table.settle(session.candidate);
  }

  #done(session: Session, peer: PeerIdentity): PeerLink | undefined {
    const { candidate, connection, secret = "" } = session;
    // This end's decision at its acceptance may have changed until the other end accepted.
    const isRefused = session.role === "acceptor" && candidate && this.#table.verdictOn(candidate) !== undefined;
    if (isRefused || !candidate || !this.#secrets.includes(secret)) return undefined;
    this.#forgetSession(session);
    connection.trust();
    const { clock, logger, observer } = this.#options;
    const link = new PeerLink({
      connection,
      peer,
      clock,
      logger: logger.child({ router: peer.origin.router }),
      meters: this.#meters,
      limits: this.#limits,
      onFrame: (which, channel, frame) => observer.frame(which, channel, frame),
      onDrained: (which, channel) => observer.drained(which, channel),
      onEnd: (which, why) => this.#linkEnded(which, why),
    });
    this.#renewal.made(link, secret);
    this.#table.put(link, candidate.dialedBy)?.close("replaced");
    this.#meters.links(this.#table.size);
    this.#rejects.forget(peer.address, connection.remote);
    if (session.target) this.#dialer.ended(session.target);
    logger.info("router linked", { ...peer.origin, address: peer.address ?? connection.remote });
    observer.up(link);
    return link;
  }

  #linkEnded(link: Link, why: LinkEnd): void {
    this.#table.remove(link);
    this.#meters.links(this.#table.size);
    this.#options.logger.info("router link closed", { ...link.peer.origin, why });
    this.#options.observer.down(link, why);
    this.#dialer.reconsider();
  }

  #failed(session: Session, failure: SessionFailure): void {
    this.#forgetSession(session);
    const { target, connection } = session;
    if (failure.kind === "replaced") {
      if (target) this.#dialer.ended(target);
      return;
    }
    if (failure.kind === "broken") {
      if (target) this.#dialFailed(target, { kind: "unreachable" });
      return;
    }
    const { by, isProved, rejection } = failure;
    const address = target?.address ?? connection.remote;
    const { origin, address: claimedAddress } = session.claimed ?? {};
    const claimed = origin ? [origin.router, claimedAddress].filter(Boolean).join(" at ") : null;
    this.#rejects.add({ address, hasDialedUs: target === undefined, by, claimed }, rejection);
    if (by === "peer" && isProved && rejection.reason === "epoch-behind") this.#renewEpoch(rejection.knownEpoch);
    const { reason, detail } = rejection;
    if (target) this.#dialFailed(target, { kind: "rejected", reason, detail });
  }

  #renewEpoch(knownEpoch: number): void {
    const { identity, onEpochBehind } = this.#options;
    const before = identity().origin.epoch;
    if (knownEpoch <= before) return;
    onEpochBehind(knownEpoch);
    if (identity().origin.epoch === before) return;
    // The other ends know this router by its old epoch: all must learn the new one.
    for (const link of this.#table.all()) link.close("replaced");
  }

  #dialFailed(target: DialTarget, failure: DialFailure): void {
    if (!this.#isRunning || target.isForgotten) return;
    this.#meters.dialFailed(failure.kind);
    this.#dialer.ended(target, failure.kind === "rejected" && failure.reason === "self");
    this.#options.observer.dialFailed(target.address, failure);
  }
}

function checkSecrets(secrets: readonly string[]): readonly string[] {
  if (secrets.length === 0 || secrets.length > maxSecrets) {
    throw new RangeError(`${secrets.length} secrets, expected 1 to ${maxSecrets}`);
  }
  if (secrets.includes("")) throw new RangeError("the secret is empty");
  return secrets;
}

function failureOf({ kind, isReset }: ConnectionEnd): DialFailure {
  // A sidecar or a forwarded port before a dead router accepts and resets: no router listens there.
  if (isReset) return { kind: "refused" };
  return { kind: kind === "refused" || kind === "timeout" ? kind : "unreachable" };
}

/** The host of `host:port`, without the brackets of an IPv6 address. */
const hostOf = (address: string): string => plainHost(address.slice(0, address.lastIndexOf(":")));

/** Time in which the same rejection of the same address is logged once. */
const quietMs = 60_000;
/** Addresses with a reason that are remembered. */
const maxRejections = 256;
/** Refused peers that operators are told of, and for how long after the latest refusal. */
export const maxRefusedPeers = 32;
export const refusedListedMs = 1_800_000;

interface RejectedPeer {
  /** `host:port`. Only the host counts for routers that dialed this one, since their port changes every time. */
  readonly address: string;
  readonly hasDialedUs: boolean;
  readonly by: "self" | "peer";
  readonly claimed: string | null;
}

/** A handshake that one of both ends refuses, perhaps again and again. */
export const refusedPeer = closed({
  address: Type.String({ description: "Address that this router dialed, or host that dialed this router." }),
  by: Type.Enum(["self", "peer"]),
  claimed: nullable(Type.String(), {
    description: "Router id and mesh address that it claims, without proof; null if it claimed none.",
  }),
  reason: Type.Unsafe<Rejection["reason"]>(Type.String()),
  detail: Type.String(),
  count: Type.Integer(),
  firstMs: Type.Number({ description: "Milliseconds since the Unix epoch." }),
  lastMs: Type.Number({ description: "Milliseconds since the Unix epoch." }),
});

export type RefusedPeer = Described<typeof refusedPeer>;

interface KnownRejection extends RefusedPeer {
  /** On the monotonic clock. */
  readonly loggedAtMs: number;
  readonly seenAtMs: number;
}

const hostPart = (address: string): string => address.replace(/:\d+$/, "");

/** Counts every rejection, logs the first of each address and reason in a while, and remembers them for operators. */
class RejectLog {
  readonly #logger: Logger;
  readonly #clock: Clock;
  readonly #meters: LinkMeters;
  /** By address, reason and end; the one seen longest ago first. */
  readonly #known = new Map<string, KnownRejection>();

  constructor(deps: { readonly logger: Logger; readonly clock: Clock; readonly meters: LinkMeters }) {
    this.#logger = deps.logger;
    this.#clock = deps.clock;
    this.#meters = deps.meters;
  }

  add({ address: given, hasDialedUs, by, claimed }: RejectedPeer, { reason, detail }: Rejection): void {
    this.#meters.rejected(reason);
    const address = hasDialedUs ? hostPart(given) : given;
    const key = `${address} ${reason} ${by}`;
    const [seenAtMs, lastMs] = [this.#clock.nowMs(), this.#clock.wallMs()];
    const { count = 0, firstMs = lastMs, loggedAtMs = Number.NEGATIVE_INFINITY } = this.#known.get(key) ?? {};
    const isQuiet = seenAtMs - loggedAtMs < quietMs;
    this.#known.delete(key);
    if (this.#known.size >= maxRejections) {
      const [oldest] = this.#known.keys();
      this.#known.delete(oldest!);
    }
    const seen = { seenAtMs, loggedAtMs: isQuiet ? loggedAtMs : seenAtMs };
    this.#known.set(key, { address, by, claimed, reason, detail, count: count + 1, firstMs, lastMs, ...seen });
    if (isQuiet) return;
    const message = by === "self" ? "router refused" : "refused by another router";
    this.#logger.warn(message, { address, claimed: claimed ?? undefined, reason, detail, code: "mesh_rejected" });
  }

  /** A router is linked now. Another one of its host that is still refused dials again within moments. */
  forget(linked: string | undefined, remote: string): void {
    const host = hostPart(remote);
    for (const [key, { address }] of this.#known) {
      if (address === linked || address === remote || address === host) this.#known.delete(key);
    }
  }

  list(): readonly RefusedPeer[] {
    const sinceMs = this.#clock.nowMs() - refusedListedMs;
    // That a router has met itself is no refusal: its own address is often among the seeds.
    const late = [...this.#known.values()].filter(({ reason, seenAtMs }) => reason !== "self" && seenAtMs > sinceMs);
    return late
      .reverse()
      .slice(0, maxRefusedPeers)
      .map(({ loggedAtMs: _, seenAtMs: __, ...refused }) => refused);
  }
}

/** From the end of one link to that of the next: by then the first has been dialed again. */
const renewalPeriodMs = 1_000;

interface LinkRenewalDeps {
  readonly scheduler: Scheduler;
  links(): readonly Link[];
  /** Whether a secret still counts. */
  counts(secret: string): boolean;
}

/**
 * Ends the links of routers that have proved a secret that does not count any more. It ends one a second, so that a
 * router stays linked while all its links, made with the cluster's old secret, are made again with the new one.
 */
class LinkRenewal {
  readonly #deps: LinkRenewalDeps;
  readonly #proved = new WeakMap<Link, string>();
  #cancel: Cancel | undefined;

  constructor(deps: LinkRenewalDeps) {
    this.#deps = deps;
  }

  /** A link was made with a router that knows this secret. */
  made(link: Link, secret: string): void {
    this.#proved.set(link, secret);
  }

  /** The secrets have changed. */
  begin(): void {
    if (!this.#cancel) this.#endNext();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #endNext(): void {
    this.#cancel = undefined;
    const outdated = this.#deps.links().find((link) => !this.#deps.counts(this.#proved.get(link) ?? ""));
    if (!outdated) return;
    this.#cancel = this.#deps.scheduler.after(renewalPeriodMs, () => this.#endNext());
    outdated.close("replaced");
  }
}
