import type { Clock } from "@espalier/core";
import { closed, type Described, nullable, Type } from "@espalier/core/schema";
import type { PromptBlocks } from "@espalier/routing";

/** Who asked for a prefix since it was first listed. */
export const prefixUsers = closed({
  sinceMs: Type.Number({ description: "Start of the count, in milliseconds since the Unix epoch." }),
  requests: Type.Integer(),
  by: Type.Array(
    closed({
      model: Type.String(),
      class: nullable(Type.String(), { description: "Null for requests that are never queued." }),
      requests: Type.Integer(),
    }),
    { description: "At most 8 pairs of model and class, the first that used the prefix." },
  ),
  sessions: Type.Array(Type.String(), {
    description: "Opaque names of the latest sessions, at most 8, latest last.",
  }),
});

type PrefixUsers = Described<typeof prefixUsers>;

interface AskedBy {
  readonly model: string;
  readonly class: string | null;
  /** As watchers of decisions get it; null without one. */
  readonly session: string | null;
}

interface CountedPrefix {
  /** Low word and high word of its last block's chain hash. */
  readonly low: number;
  readonly high: number;
  readonly blocks: number;
  readonly sinceMs: number;
  requests: number;
  readonly by: { readonly model: string; readonly class: string | null; requests: number }[];
  readonly sessions: Set<string>;
  listedMs: number;
}

/** Counts the requests for prefixes that operators look at. While nobody looks it costs one comparison per request. */
export interface PrefixUse {
  readonly isWatched: boolean;
  /** The prefix is listed now: counts its requests from the first time on, until it is not listed for a minute. */
  listed(hash: Uint32Array, blocks: number): PrefixUsers;
  note(prompt: PromptBlocks, asked: AskedBy): void;
}

/** Most prefixes whose requests are counted. */
export const maxCountedPrefixes = 256;
/** Pairs of model and class of a prefix, and its sessions. */
export const maxPrefixUsers = 8;
/** How long a prefix that is no longer listed is counted. */
export const countedMs = 60_000;

export function createPrefixUse(clock: Clock): PrefixUse {
  const counted = new Map<string, CountedPrefix>();
  const forget = (): void => {
    for (const [key, { listedMs }] of counted) if (clock.nowMs() - listedMs > countedMs) counted.delete(key);
  };
  return {
    get isWatched() {
      return counted.size > 0;
    },
    listed(hash, blocks) {
      forget();
      const key = hash.join();
      const known = counted.get(key) ?? {
        ...{ low: hash[0]!, high: hash[1]!, blocks, sinceMs: clock.wallMs(), requests: 0, by: [] },
        ...{ sessions: new Set<string>(), listedMs: 0 },
      };
      known.listedMs = clock.nowMs();
      if (counted.size < maxCountedPrefixes) counted.set(key, known);
      const { sinceMs, requests, by, sessions } = known;
      return { sinceMs, requests, by: by.map((each) => ({ ...each })), sessions: [...sessions] };
    },
    note({ chain, blockCount }, asked) {
      forget();
      for (const prefix of counted.values()) {
        const at = 2 * (prefix.blocks - 1);
        if (prefix.blocks > blockCount || chain[at] !== prefix.low || chain[at + 1] !== prefix.high) continue;
        count(prefix, asked);
      }
    },
  };
}

function count(prefix: CountedPrefix, { model, class: className, session }: AskedBy): void {
  prefix.requests += 1;
  const known = prefix.by.find((each) => each.model === model && each.class === className);
  if (known) known.requests += 1;
  else if (prefix.by.length < maxPrefixUsers) prefix.by.push({ model, class: className, requests: 1 });
  if (session === null) return;
  prefix.sessions.delete(session);
  prefix.sessions.add(session);
  if (prefix.sessions.size > maxPrefixUsers) prefix.sessions.delete(prefix.sessions.values().next().value!);
}
