import { lookup, Resolver } from "node:dns/promises";
import {
  type Cancel,
  type EngineTraits,
  type Random,
  type Scheduler,
  systemRandom,
  systemScheduler,
} from "@espalier/core";
import {
  type AddressFamily,
  type EngineAddress,
  engineAt,
  formatHost,
  maxEnginesPerSource,
} from "./discovered-engine.ts";
import {
  createFailureReport,
  type EngineSource,
  type FailureReport,
  type PeerSource,
  type Source,
  type SourceObserver,
} from "./engine-source.ts";

/** Jitter of the interval, as a share of it in either direction, so that routers do not query in step. */
const jitterShare = 0.2;
/** Longest wait for the answer to a query. */
const queryTimeoutMs = 15_000;
/** Longest wait for the first answer at a start. */
const startTimeoutMs = 5_000;

export interface PeerDnsSourceOptions extends DnsQuery {
  /** Time between two queries, with a jitter of 20 %. */
  readonly intervalMs: number;
  /** Answers in a row that lack an address before it is removed. */
  readonly misses: number;
  /** Name servers, as `address` or `address:port`; empty for the system's. */
  readonly servers: readonly string[];
  readonly scheduler?: Scheduler;
  readonly random?: Random;
  readonly resolver?: DnsResolver;
}

export interface DnsSourceOptions extends PeerDnsSourceOptions {
  readonly traits: EngineTraits;
}

/**
 * A source that follows a DNS name: its A or AAAA records with a given port, or its SRV records. Every address is an engine.
 * If the name cannot be resolved, or loses all of its addresses at once, the last list stays: engines that are really gone
 * fail their health checks.
 */
export function createDnsSource(options: DnsSourceOptions): EngineSource {
  return new DnsSource(options, (at) => engineAt(at, options.traits));
}

/** A source that follows a DNS name whose addresses are other routers. */
export function createPeerDnsSource(options: PeerDnsSourceOptions): PeerSource {
  return new DnsSource(options, formatHost);
}

class DnsSource<Entry> implements Source<Entry> {
  readonly name: string;
  readonly #options: PeerDnsSourceOptions;
  readonly #entryAt: (at: EngineAddress) => Entry;
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #resolver: DnsResolver;
  readonly #list;
  #observer: SourceObserver<Entry> | undefined;
  #report: FailureReport | undefined;
  /** Number of the current query. Answers to earlier ones are ignored. */
  #round = 0;
  /** Whether a query is in progress: a resolver that hangs gets no further one. */
  #isQuerying = false;
  #cancel: Cancel = () => {};

  constructor(options: PeerDnsSourceOptions, entryAt: (at: EngineAddress) => Entry) {
    const { name, port, scheduler = systemScheduler, random = systemRandom, misses } = options;
    this.name = port === undefined ? `dns ${name}` : `dns ${name}:${port}`;
    this.#options = options;
    this.#entryAt = entryAt;
    this.#scheduler = scheduler;
    this.#random = random;
    this.#resolver = options.resolver ?? createDnsResolver(options.servers);
    this.#list = createAddressList({ misses, maxAddresses: maxEnginesPerSource });
  }

  async start(observer: SourceObserver<Entry>): Promise<void> {
    this.#observer = observer;
    this.#report = createFailureReport(this.name, observer);
    let cancelTimeout: Cancel = () => {};
    const timeout = new Promise<void>((resolve) => {
      cancelTimeout = this.#scheduler.after(startTimeoutMs, () => {
        this.#report?.fail("answers", `no answer within ${startTimeoutMs} ms`);
        resolve();
      });
    });
    observer.onList([]);
    await Promise.race([this.#query(), timeout]);
    cancelTimeout();
  }

  async stop(): Promise<void> {
    this.#round += 1;
    this.#observer = undefined;
    this.#cancel();
    this.#resolver.cancel();
  }

  /** Queries once and schedules the next query. Resolves when the answer was processed or timed out. */
  #query(): Promise<void> {
    this.#round += 1;
    const round = this.#round;
    return new Promise((resolve) => {
      const close = (handle: () => void): void => {
        if (round === this.#round && this.#observer) {
          this.#round += 1;
          this.#cancel();
          handle();
          const delayMs = this.#options.intervalMs * (1 + jitterShare * (2 * this.#random.float() - 1));
          this.#cancel = this.#scheduler.after(delayMs, () => void this.#query());
        }
        resolve();
      };
      this.#cancel = this.#scheduler.after(queryTimeoutMs, () =>
        close(() => this.#report?.fail("answers", `no answer within ${queryTimeoutMs} ms; last list stays in use`)),
      );
      if (this.#isQuerying) return;
      this.#isQuerying = true;
      resolveAddresses(this.#resolver, this.#options).then(
        (answer) => {
          this.#isQuerying = false;
          close(() => this.#take(answer));
        },
        (error: unknown) => {
          this.#isQuerying = false;
          close(() => this.#report?.fail("answers", `${reasonOf(error)}; last list stays in use`, error));
        },
      );
    });
  }

  #take({ found, failure }: FoundAddresses): void {
    if (found.length === 0 && failure === undefined) {
      this.#report?.fail("answers", "the name has no addresses; last list stays in use");
      return;
    }
    const { hasChanged, ignored } = this.#list.take(found, failure === undefined);
    if (failure !== undefined)
      this.#report?.fail("answers", `${reasonOf(failure)}; known addresses beyond the answer stay in use`, failure);
    else if (ignored > 0)
      this.#report?.fail("answers", `more than ${maxEnginesPerSource} addresses; the rest is ignored`);
    else this.#report?.clear("answers");
    if (hasChanged) this.#observer?.onList(this.#list.addresses.map(this.#entryAt));
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

interface AddressListOptions {
  /** Answers in a row that lack an address before it is removed. */
  readonly misses: number;
  readonly maxAddresses: number;
}

/** The addresses of a name, by its latest answers. */
function createAddressList({ misses, maxAddresses }: AddressListOptions) {
  const known = new Map<string, { readonly at: EngineAddress; missed: number }>();
  return {
    /**
     * Processes an answer. New addresses are added at once; a known one is removed when `misses` answers in a row lack it.
     *
     * @param isWhole whether an address that is not in the answer is missing
     * @returns whether the addresses have changed, and how many new ones were left out because there are too many
     */
    take(
      answer: readonly EngineAddress[],
      isWhole: boolean,
    ): { readonly hasChanged: boolean; readonly ignored: number } {
      let hasChanged = false;
      const found = new Map(answer.map((at) => [formatHost(at), at]));
      for (const [host, entry] of known) {
        if (found.has(host)) entry.missed = 0;
        else if (isWhole) entry.missed += 1;
        if (entry.missed >= misses) hasChanged = known.delete(host);
      }
      let ignored = 0;
      for (const [host, at] of [...found].sort(byText)) {
        if (known.has(host)) continue;
        if (known.size >= maxAddresses) {
          ignored += 1;
          continue;
        }
        known.set(host, { at, missed: 0 });
        hasChanged = true;
      }
      return { hasChanged, ignored };
    },
    /** Sorted by their text. */
    get addresses(): readonly EngineAddress[] {
      return [...known].sort(byText).map(([, { at }]) => at);
    },
  };
}

const byText = ([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number =>
  left < right ? -1 : Number(left > right);

/** Queries name servers. An empty list means that the name has no such record. */
export interface DnsResolver {
  /** @param family 4 for A records, 6 for AAAA */
  addresses(name: string, family: 4 | 6): Promise<readonly string[]>;
  services(name: string): Promise<readonly { readonly name: string; readonly port: number }[]>;
  /** Cancels queries in progress, where that is possible. */
  cancel(): void;
}

/** Timeout and number of attempts of one query. */
const attempt = { timeout: 2_000, tries: 2 };
/** The name does not exist, or has no record of the type. */
const emptyCodes: ReadonlySet<unknown> = new Set(["ENOTFOUND", "ENODATA"]);

/**
 * @param servers name servers as `address` or `address:port`. Without any, addresses are looked up through the system, with
 *   `/etc/hosts` and search domains, and SRV records at the system's name servers.
 */
function createDnsResolver(servers: readonly string[]): DnsResolver {
  const resolver = new Resolver(attempt);
  if (servers.length > 0) resolver.setServers(servers);
  const resolve = (name: string, family: 4 | 6): Promise<string[]> =>
    family === 4 ? resolver.resolve4(name) : resolver.resolve6(name);
  const lookUp = async (name: string, family: 4 | 6): Promise<string[]> =>
    (await lookup(name, { all: true, family })).map(({ address }) => address);
  return {
    addresses: (name, family) => emptyWhenAbsent((servers.length > 0 ? resolve : lookUp)(name, family)),
    services: (name) => emptyWhenAbsent(resolver.resolveSrv(name)),
    cancel: () => resolver.cancel(),
  };
}

async function emptyWhenAbsent<T>(answer: Promise<T[]>): Promise<T[]> {
  try {
    return await answer;
  } catch (error) {
    if (emptyCodes.has((error as NodeJS.ErrnoException).code)) return [];
    throw error;
  }
}

/** Most targets of SRV records that are resolved at the same time. */
const maxParallel = 16;
/** Most SRV records used. Further ones are left out and reported. */
const maxServices = 4_096;

/** What to query. */
interface DnsQuery {
  readonly name: string;
  /** Undefined to query SRV records, which have the port. */
  readonly port: number | undefined;
  readonly family: AddressFamily;
}

interface FoundAddresses {
  readonly found: readonly EngineAddress[];
  /** Why some addresses could not be resolved. `found` is then incomplete. */
  readonly failure: unknown;
}

/**
 * Resolves single hosts.
 *
 * @param servers see `createDnsResolver`
 * @returns resolves a host; rejects for a host without addresses
 */
export function createHostLookup(servers: readonly string[]): (host: string) => Promise<readonly string[]> {
  const resolver = createDnsResolver(servers);
  return async (host) => {
    const found = await addressesOf(resolver, host, "auto");
    if (found.length === 0) throw new Error(`${host} has no addresses`);
    return found;
  };
}

/**
 * How long caches may keep the addresses of a host, by what the name servers say.
 *
 * @param servers see `createDnsResolver`
 * @returns the largest TTL in seconds; undefined where they have no record, or do not answer
 */
export async function lookUpTtl(servers: readonly string[], host: string): Promise<number | undefined> {
  const resolver = new Resolver(attempt);
  if (servers.length > 0) resolver.setServers(servers);
  const found = await Promise.all([
    resolver.resolve4(host, { ttl: true }).catch(() => []),
    resolver.resolve6(host, { ttl: true }).catch(() => []),
  ]);
  const seconds = found.flat().map(({ ttl }) => ttl);
  return seconds.length === 0 ? undefined : Math.max(...seconds);
}

/** @throws the resolver's error if nothing could be resolved */
async function resolveAddresses(resolver: DnsResolver, { name, port, family }: DnsQuery): Promise<FoundAddresses> {
  if (port !== undefined) {
    const found = await addressesOf(resolver, name, family);
    return { found: found.map((address) => ({ address, port })), failure: undefined };
  }
  const services = await resolver.services(name);
  const targets = [...new Set(services.slice(0, maxServices).map((service) => service.name))];
  const hosts = new Map<string, readonly string[]>();
  let failure: unknown = services.length > maxServices ? `more than ${maxServices} SRV records` : undefined;
  const resolveRest = async (): Promise<void> => {
    for (let target = targets.pop(); target !== undefined; target = targets.pop()) {
      try {
        hosts.set(target, await addressesOf(resolver, target, family));
      } catch (error) {
        failure = error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(maxParallel, targets.length) }, resolveRest));
  if (services.length > 0 && hosts.size === 0) throw failure;
  const found = services.flatMap((service) =>
    (hosts.get(service.name) ?? []).map((address) => ({ address, port: service.port })),
  );
  return { found, failure };
}

/** An answer without IPv4 addresses leads to a query for IPv6; a failed query does not. */
async function addressesOf(resolver: DnsResolver, name: string, family: AddressFamily): Promise<readonly string[]> {
  if (family !== "ipv6") {
    const found = await resolver.addresses(name, 4);
    if (found.length > 0 || family === "ipv4") return found;
  }
  return resolver.addresses(name, 6);
}
