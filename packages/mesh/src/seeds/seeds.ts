import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { type Cancel, hostInUrl } from "@espalier/core";
import type { DialFailure, ProcessPorts } from "../link/link.ts";

/** Seeds that another component finds and keeps up to date. */
export interface FoundSeeds {
  /** `host:port` each; a name may have many addresses. */
  seeds(): readonly string[];
  /** Whether the finder of seeds has found some, or has failed to, at least once. */
  readonly isTried: boolean;
  /** Calls the listener when the seeds change, and when they have been tried. */
  onChange(listener: () => void): Cancel;
}

/** How often names are resolved, give or take a fifth. */
const resolveMs = 5_000;
const jitterShare = 0.2;
/** A slower answer is not waited for. */
const resolveTimeoutMs = 15_000;
/** Addresses of all seeds together. */
export const maxSeedAddresses = 256;

export interface SeedsDeps extends Omit<ProcessPorts, "clock"> {
  /** `host:port` each; a name may have many addresses. */
  readonly seeds: readonly string[];
  /** Seeds that come and go. */
  readonly found?: FoundSeeds;
  /** All addresses of a name. A rejection leaves the addresses known before in place. */
  readonly resolve: (host: string) => Promise<readonly string[]>;
  /** Dials an address until it is forgotten. */
  dial(address: string): void;
  forget(address: string): void;
  /** Whether the router that listens there is this one. */
  isSelf(address: string): boolean;
  /** Whether the router that listens there is a live member. If so, the member that should link to it dials it. */
  isReached(address: string): boolean;
}

interface SeedState {
  readonly address: SeedAddress;
  found: readonly string[];
  isTried: boolean;
  hasFailed: boolean;
}

function newSeed(text: string): SeedState {
  const address = parseSeed(text);
  const found = address.isName ? [] : [formatAddress(address.host, address.port)];
  return { address, found, isTried: !address.isName, hasFailed: false };
}

/**
 * Dials the seeds, where a router finds the first of its peers. It never stops: a mesh that was split heals by its
 * seeds.
 *
 * @throws RangeError for a seed that is not `host:port`
 */
export class Seeds {
  readonly #deps: SeedsDeps;
  /** By the text of each. */
  #seeds = new Map<string, SeedState>();
  readonly #dialed = new Set<string>();
  /** Addresses at which this router met itself. */
  readonly #own = new Set<string>();
  readonly #failures;
  #round = 0;
  #cancel: Cancel[] = [];
  #unfollow: Cancel | undefined;
  #hasOverflowed = false;

  constructor(deps: SeedsDeps) {
    this.#deps = deps;
    this.#list();
    this.#failures = deps.meter
      .counter("espalier_mesh_seed_resolve_failures_total", "Seed names that could not be resolved.")
      .series();
  }

  /**
   * Whether every name has been resolved, or has failed to be, at least once, and the finder of seeds has been tried.
   */
  get isResolved(): boolean {
    return this.#states().every(({ isTried }) => isTried) && (this.#deps.found?.isTried ?? true);
  }

  start(): void {
    this.#unfollow = this.#deps.found?.onChange(() => {
      // New names are resolved at once.
      if (this.#list()) this.#run();
      else this.#update();
    });
    this.#list();
    this.#run();
  }

  stop(): void {
    this.#unfollow?.();
    this.#round += 1;
    for (const cancel of this.#cancel.splice(0)) cancel();
    for (const address of this.#dialed) this.#deps.forget(address);
    this.#dialed.clear();
  }

  dialFailed(address: string, why: DialFailure): void {
    if (why.kind !== "rejected" || why.reason !== "self" || !this.#dialed.has(address)) return;
    this.#own.add(address);
    this.#update();
  }

  /** The present addresses of the seeds, without this router's own. */
  addresses(): readonly string[] {
    const all = new Set(this.#states().flatMap(({ found }) => found));
    for (const address of this.#own) if (!all.has(address)) this.#own.delete(address);
    const others = [...all].filter((address) => !this.#own.has(address) && !this.#deps.isSelf(address));
    if (others.length > maxSeedAddresses && !this.#hasOverflowed) {
      this.#hasOverflowed = true;
      this.#deps.logger.warn("the seeds resolve to too many addresses", {
        count: others.length,
        max: maxSeedAddresses,
      });
    }
    return others.slice(0, maxSeedAddresses);
  }

  #states(): readonly SeedState[] {
    return [...this.#seeds.values()];
  }

  /**
   * Takes the seeds as they are listed now; what is known of those that remain is kept.
   *
   * @returns whether a name is new
   */
  #list(): boolean {
    const texts = new Set([...this.#deps.seeds, ...(this.#deps.found?.seeds() ?? [])]);
    const before = this.#seeds;
    this.#seeds = new Map([...texts].map((text) => [text, before.get(text) ?? newSeed(text)]));
    return [...this.#seeds].some(([text, { address }]) => address.isName && !before.has(text));
  }

  /** One round: resolves every name, and plans the next round, whatever the outcome. */
  #run(): void {
    this.#round += 1;
    const round = this.#round;
    const delayMs = resolveMs * (1 + jitterShare * (2 * this.#deps.random.float() - 1));
    this.#update();
    for (const cancel of this.#cancel.splice(0)) cancel();
    const names = this.#states().filter(({ address }) => address.isName);
    let pending = names.length;
    const next = (): void => {
      if (round !== this.#round) return;
      for (const seed of names) seed.isTried = true;
      for (const cancel of this.#cancel.splice(0)) cancel();
      this.#cancel = [this.#deps.scheduler.after(delayMs, () => this.#run())];
    };
    if (pending === 0) {
      next();
      return;
    }
    this.#cancel = [this.#deps.scheduler.after(resolveTimeoutMs, next)];
    for (const seed of names) {
      void this.#resolve(seed, () => round === this.#round).then(() => {
        pending -= 1;
        if (pending === 0) next();
      });
    }
  }

  async #resolve(seed: SeedState, isCurrent: () => boolean): Promise<void> {
    const { host, port } = seed.address;
    try {
      const hosts = await this.#deps.resolve(host);
      if (!isCurrent()) return;
      seed.found = [...new Set(hosts)].sort().map((found) => formatAddress(found, port));
      seed.hasFailed = false;
    } catch (error) {
      if (!isCurrent()) return;
      this.#failures.add();
      if (!seed.hasFailed) this.#deps.logger.warn("seed not resolved", { host, error: String(error) });
      seed.hasFailed = true;
    }
    seed.isTried = true;
    this.#update();
  }

  /** Dials what is new, forgets what is gone. */
  #update(): void {
    const wanted = new Set(this.addresses().filter((address) => !this.#deps.isReached(address)));
    for (const address of this.#dialed) {
      if (wanted.has(address)) continue;
      this.#dialed.delete(address);
      this.#deps.forget(address);
    }
    for (const address of wanted) {
      if (this.#dialed.has(address)) continue;
      this.#dialed.add(address);
      this.#deps.dial(address);
    }
  }
}

export interface SeedAddress {
  /** A name, or an IP address without brackets. */
  readonly host: string;
  readonly port: number;
  /** Whether the host must be resolved. */
  readonly isName: boolean;
}

/**
 * @param text `host:port`; an IPv6 address is in brackets
 * @throws RangeError for anything else
 */
export function parseSeed(text: string): SeedAddress {
  const parts = /^(?:\[([^\]]+)\]|([^:[\]\s/]+)):(\d{1,5})$/.exec(text);
  const host = parts?.[1] ?? parts?.[2] ?? "";
  const port = Number(parts?.[3]);
  const isBracketedName = parts?.[1] !== undefined && isIP(host) !== 6;
  if (host === "" || isBracketedName || !(port >= 1 && port <= 65_535)) {
    throw new RangeError(`a seed is host:port, not ${JSON.stringify(text)}`);
  }
  return { host, port, isName: isIP(host) === 0 };
}

/** The form in which an address is dialed. */
export function formatAddress(host: string, port: number): string {
  return `${hostInUrl(host)}:${port}`;
}

/** All addresses of a host, by the system's resolver, so that `/etc/hosts` and search domains count. */
export async function resolveHost(host: string): Promise<string[]> {
  const found = await lookup(host, { all: true });
  return found.map(({ address }) => address);
}

/** Dials addresses for one of several users. */
export interface DialUser {
  dial(address: string): void;
  forget(address: string): void;
}

/**
 * Lets several users dial through one dialer: an address is forgotten when the last of them forgets it.
 *
 * @param dialer an address dialed again is dialed at once when it has no link
 */
export function createDialList(dialer: DialUser): { user(): DialUser } {
  const usersOf = new Map<string, Set<DialUser>>();
  return {
    user() {
      const user: DialUser = {
        dial(address) {
          const users = usersOf.get(address) ?? new Set();
          usersOf.set(address, users.add(user));
          dialer.dial(address);
        },
        forget(address) {
          const users = usersOf.get(address);
          if (!users?.delete(user) || users.size > 0) return;
          usersOf.delete(address);
          dialer.forget(address);
        },
      };
      return user;
    },
  };
}
