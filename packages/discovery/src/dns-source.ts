import {
  type Cancel,
  type EngineTraits,
  type Random,
  type Scheduler,
  systemRandom,
  systemScheduler,
} from "@espalier/common";
import { type EngineAddress, engineAt, formatHost, maxEnginesPerSource } from "./discovered-engine.ts";
import {
  createDnsResolver,
  type DnsQuestion,
  type DnsResolver,
  type FoundAddresses,
  findAddresses,
} from "./dns-resolver.ts";
import {
  createFailureReport,
  type EngineSource,
  type FailureReport,
  type PeerSource,
  type Source,
  type SourceObserver,
} from "./engine-source.ts";

/** How far two rounds may be nearer or farther than the interval, so that routers do not ask in step. */
const jitterShare = 0.2;
/** An answer that took longer is not waited for. */
const patienceMs = 15_000;
/** How long a start waits for the first answer. */
const startPatienceMs = 5_000;

export interface PeerDnsSourceOptions extends DnsQuestion {
  /** Between two questions, in milliseconds, give or take a fifth. */
  readonly intervalMs: number;
  /** Answers in a row without an address after which it leaves the list. */
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
 * A source that follows a name: its A or AAAA records with a given port, or its SRV records. All addresses count. When
 * the name cannot be resolved, or has lost all of its addresses at once, the last list stays: engines that are really
 * gone fail their health checks.
 */
export function createDnsSource(options: DnsSourceOptions): EngineSource {
  return new DnsSource(options, (at) => engineAt(at, options.traits));
}

/** The same, where the name stands for other routers. */
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
  /** Questions that nobody waits for any more have another number. */
  #round = 0;
  /** Whether a question is under way: a resolver that hangs is not asked once more. */
  #isAsking = false;
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
    let cancelPatience: Cancel = () => {};
    const patience = new Promise<void>((resolve) => {
      cancelPatience = this.#scheduler.after(startPatienceMs, () => {
        this.#report?.fail("answers", `no answer within ${startPatienceMs} ms`);
        resolve();
      });
    });
    observer.onList([]);
    await Promise.race([this.#ask(), patience]);
    cancelPatience();
  }

  async stop(): Promise<void> {
    this.#round += 1;
    this.#observer = undefined;
    this.#cancel();
    this.#resolver.cancel();
  }

  /** One question and what comes of it; plans the next. Resolves when its answer was taken or given up. */
  #ask(): Promise<void> {
    this.#round += 1;
    const round = this.#round;
    return new Promise((resolve) => {
      const close = (handle: () => void): void => {
        if (round === this.#round && this.#observer) {
          this.#round += 1;
          this.#cancel();
          handle();
          const delayMs = this.#options.intervalMs * (1 + jitterShare * (2 * this.#random.float() - 1));
          this.#cancel = this.#scheduler.after(delayMs, () => void this.#ask());
        }
        resolve();
      };
      this.#cancel = this.#scheduler.after(patienceMs, () =>
        close(() => this.#report?.fail("answers", `no answer within ${patienceMs} ms; the last list stays`)),
      );
      if (this.#isAsking) return;
      this.#isAsking = true;
      findAddresses(this.#resolver, this.#options).then(
        (answer) => {
          this.#isAsking = false;
          close(() => this.#take(answer));
        },
        (error: unknown) => {
          this.#isAsking = false;
          close(() => this.#report?.fail("answers", `${reasonOf(error)}; the last list stays`, error));
        },
      );
    });
  }

  #take({ found, failure }: FoundAddresses): void {
    if (found.length === 0 && failure === undefined) {
      this.#report?.fail("answers", "the name has no addresses; the last list stays");
      return;
    }
    const { hasChanged, leftOut } = this.#list.take(found, failure === undefined);
    if (failure !== undefined)
      this.#report?.fail("answers", `${reasonOf(failure)}; what is known beyond the answer stays`, failure);
    else if (leftOut > 0)
      this.#report?.fail("answers", `more than ${maxEnginesPerSource} addresses; the others are left out`);
    else this.#report?.clear("answers");
    if (hasChanged) this.#observer?.onList(this.#list.addresses.map(this.#entryAt));
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

interface AddressListOptions {
  /** Answers in a row without an address after which it is gone. */
  readonly misses: number;
  readonly maxAddresses: number;
}

/** The addresses that a name stands for, by its latest answers. */
interface AddressList {
  /**
   * Takes an answer. New addresses count at once; a known one is gone when `misses` answers in a row lack it.
   *
   * @param isWhole whether what is not in the answer is missing
   * @returns whether the addresses are others now, and how many are left out because there are too many: those that are
   *   known stay before new ones
   */
  take(answer: readonly EngineAddress[], isWhole: boolean): { readonly hasChanged: boolean; readonly leftOut: number };
  /** In the order of their texts. */
  readonly addresses: readonly EngineAddress[];
}

function createAddressList({ misses, maxAddresses }: AddressListOptions): AddressList {
  const known = new Map<string, { readonly at: EngineAddress; missed: number }>();
  return {
    take(answer, isWhole) {
      let hasChanged = false;
      const found = new Map(answer.map((at) => [formatHost(at), at]));
      for (const [host, entry] of known) {
        if (found.has(host)) entry.missed = 0;
        else if (isWhole) entry.missed += 1;
        if (entry.missed >= misses) hasChanged = known.delete(host);
      }
      let leftOut = 0;
      for (const [host, at] of [...found].sort(byText)) {
        if (known.has(host)) continue;
        if (known.size >= maxAddresses) {
          leftOut += 1;
          continue;
        }
        known.set(host, { at, missed: 0 });
        hasChanged = true;
      }
      return { hasChanged, leftOut };
    },
    get addresses() {
      return [...known].sort(byText).map(([, { at }]) => at);
    },
  };
}

const byText = ([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number =>
  left < right ? -1 : Number(left > right);
