import { type Clock, RecencyMap } from "@espalier/common";
import type { BindingStore } from "@espalier/routing";
import { DueQueue } from "./delivery.ts";

/** Bindings that are kept, as many as real routers keep. */
const maxKnownBindings = 100_000;

interface Binding {
  readonly key: string;
  readonly value: string;
  readonly expiresMs: number;
  /** Later bindings have greater ones. */
  readonly stamp: number;
  readonly router: number;
}

export interface SessionBoardOptions {
  readonly clock: Clock;
  /** When what is bound at a moment is known to the other routers; later moments never arrive earlier. */
  readonly dueMs: (boundMs: number) => number;
  /** Bindings that everybody has heard of: beyond, those that arrived the longest ago go. Default: 100,000. */
  readonly capacity?: number;
}

/**
 * What sessions are bound to, for routers that hear of each other late. One table stands for those of all: it holds what
 * has reached everybody, the latest word on each session. A router sees its own words at once.
 */
export class SessionBoard {
  readonly #options: SessionBoardOptions;
  readonly #known = new RecencyMap<string, Binding>();
  /** By router: its last word on each session, until the others have it. */
  readonly #own: Map<string, Binding>[] = [];
  readonly #underWay = new DueQueue<Binding>();
  #stamp = 0;

  constructor(options: SessionBoardOptions) {
    this.#options = options;
  }

  /** The bindings as one router sees them. */
  seenBy(router: number): BindingStore {
    const { clock, dueMs } = this.#options;
    const own = this.#own[router] ?? new Map<string, Binding>();
    this.#own[router] = own;
    const find = (key: string): Binding | undefined => {
      this.#catchUp();
      const mine = own.get(key);
      const known = this.#known.get(key);
      const last = mine && known ? (mine.stamp > known.stamp ? mine : known) : (mine ?? known);
      return last && last.expiresMs > clock.nowMs() ? last : undefined;
    };
    return {
      get: (key) => find(key)?.value,
      leftMs(key) {
        const found = find(key);
        return found ? found.expiresMs - clock.nowMs() : 0;
      },
      set: (key, value, ttlMs) => {
        const nowMs = clock.nowMs();
        const binding = { key, value, expiresMs: nowMs + ttlMs, stamp: ++this.#stamp, router };
        own.set(key, binding);
        this.#underWay.push(dueMs(nowMs), binding);
        this.#catchUp();
      },
    };
  }

  #catchUp(): void {
    const nowMs = this.#options.clock.nowMs();
    while (this.#underWay.nextDueMs <= nowMs) this.#arrive(this.#underWay.take());
  }

  /** They arrive in the order of their stamps. */
  #arrive(binding: Binding): void {
    const { capacity = maxKnownBindings } = this.#options;
    const { key, router } = binding;
    const own = this.#own[router]!;
    if (own.get(key) === binding) own.delete(key);
    this.#known.set(key, binding);
    if (this.#known.size > capacity) this.#known.deleteOldest();
  }
}
