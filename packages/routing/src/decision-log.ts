import { targetExclusions } from "@espalier/engines";
import { type CandidateSet, type Choice, matchedInAll } from "@espalier/policies";

/** Decisions that are kept; further ones replace the oldest. */
export const keptDecisions = 16_384;
/** Candidates that are kept of a decision: the chosen one, and the others with the lowest costs. */
export const keptCandidates = 16;
/** Targets that are kept of those that a decision left out. */
export const keptExcluded = 16;
/** Most decisions that `find` returns: a client may give many requests the same id. */
export const maxFoundDecisions = 8;
/** Longest request id, in characters of ASCII. Routers take no others; a decision about a longer one is not kept. */
export const maxIdLength = 128;

/** A candidate as it was when the decision was made. */
export interface LoggedCandidate {
  readonly key: string;
  /** Lower is better, in the policy's unit; null without one. */
  readonly cost: number | null;
  /** Prompt tokens that it was believed to have, in any tier. */
  readonly matchedTokens: number;
  readonly inFlight: number;
  /** Prompt tokens that waited there. */
  readonly pendingPrefillTokens: number;
  /** Milliseconds of a round trip to it; null while that is not known. */
  readonly networkMs: number | null;
}

/** Why the router leaves a target out of a decision. `cache_memory`: the prompt would evict what is likelier to be reused. */
export const exclusions = [
  ...targetExclusions,
  "role",
  "tried",
  "stored_response",
  "class_partition",
  "saturated",
  "cache_memory",
] as const;
export type Exclusion = (typeof exclusions)[number];

/** A target that could not be chosen, and why. */
export interface Excluded {
  readonly key: string;
  /** An `Exclusion`, or the name of the policy's filter. */
  readonly reason: string;
}

/** A decision, found again. */
export interface LoggedDecision<Facts> {
  readonly facts: Facts;
  /** The chosen one first, then by rising cost. */
  readonly candidates: readonly LoggedCandidate[];
  /** How many were compared, those that are not kept included. */
  readonly comparedCount: number;
  /** At most `keptExcluded` of those that could not be chosen. */
  readonly excluded: readonly Excluded[];
  readonly excludedCount: number;
}

/** Keeps what decisions were about, by their place in the log: from 0, below the number of decisions that are kept. */
export interface FactStore<Facts> {
  /** Replaces what was there. */
  write(entry: number, facts: Facts): void;
  read(entry: number): Facts;
}

/** Numbers of a candidate in the log. */
const width = 5;

/**
 * The latest decisions of a router. It is written at every decision and read almost never, so that a decision costs
 * some stores into arrays; order and words are made when somebody asks. No object outlives its request for the log: V8
 * would copy it twice, and walk it at each full collection. Ids are kept by their characters, since a new one is a tree
 * of the strings that it was put together from. The arrays are allocated once, about 13 MB.
 */
export class DecisionLog<Facts> {
  readonly #decisions: number;
  readonly #facts: FactStore<Facts>;
  /** Characters; each id has place for `maxIdLength`. */
  readonly #ids: Uint8Array;
  /** 0 until a decision is named. */
  readonly #idLengths: Uint8Array;
  readonly #keys: string[];
  readonly #numbers: Float32Array;
  readonly #kept: Uint8Array;
  readonly #compared: Uint32Array;
  readonly #excluded: Uint32Array;
  /** Key and reason of each target that was left out. */
  readonly #excludedTexts: string[];
  #next = 0;

  /** @param facts has as many places as decisions are kept */
  constructor(decisions: number, facts: FactStore<Facts>) {
    this.#decisions = decisions;
    this.#facts = facts;
    this.#ids = new Uint8Array(decisions * maxIdLength);
    this.#idLengths = new Uint8Array(decisions);
    // An array that grows leaves its earlier, smaller selves behind.
    this.#keys = new Array(decisions * keptCandidates);
    this.#numbers = new Float32Array(decisions * keptCandidates * width);
    this.#kept = new Uint8Array(decisions);
    this.#compared = new Uint32Array(decisions);
    this.#excluded = new Uint32Array(decisions);
    this.#excludedTexts = new Array(decisions * keptExcluded * 2);
  }

  /**
   * Keeps the candidates of a choice. Call it before the policy chooses again.
   *
   * @returns the decision's number, by which `name` says what it was about
   */
  add(candidates: CandidateSet, { index: chosen, judged }: Choice, excluded: readonly Excluded[] = []): number {
    const number = this.#begin();
    const entry = number % this.#decisions;
    const compared = judged ? judged.eligibleCount : candidates.count;
    const first = entry * keptCandidates;
    this.#write(first, candidates, chosen, judged ? judged.costs[chosen]! : Number.NaN);
    let kept = 1;
    let worst = 0;
    for (let place = 0; place < compared; place++) {
      const index = judged ? judged.eligible[place]! : place;
      if (index === chosen) continue;
      const cost = judged ? judged.costs[index]! : Number.NaN;
      if (kept < keptCandidates) this.#write(first + kept++, candidates, index, cost);
      else if (cost < this.#numbers[worst * width]!) this.#write(worst, candidates, index, cost);
      else continue;
      if (kept === keptCandidates) worst = this.#worstOf(first);
    }
    this.#kept[entry] = kept;
    this.#compared[entry] = compared;
    this.#excluded[entry] = excluded.length;
    for (let at = 0; at < excluded.length && at < keptExcluded; at++) {
      const place = 2 * (entry * keptExcluded + at);
      this.#excludedTexts[place] = excluded[at]!.key;
      this.#excludedTexts[place + 1] = excluded[at]!.reason;
    }
    return number;
  }

  /**
   * Says which request a decision was about. Until then it is not found.
   *
   * @param number undefined for a decision whose candidates were not kept
   */
  name(number: number | undefined, id: string, facts: Facts): void {
    const at = number ?? this.#begin();
    if (at < this.#next - this.#decisions || id.length > maxIdLength) return;
    const entry = at % this.#decisions;
    const first = entry * maxIdLength;
    for (let unit = 0; unit < id.length; unit++) this.#ids[first + unit] = id.charCodeAt(unit);
    this.#idLengths[entry] = id.length;
    this.#facts.write(entry, facts);
  }

  /** The decisions about a request, the earliest first. */
  find(id: string): readonly LoggedDecision<Facts>[] {
    const found: LoggedDecision<Facts>[] = [];
    const oldest = Math.max(0, this.#next - this.#decisions);
    for (let number = this.#next - 1; number >= oldest && found.length < maxFoundDecisions; number--) {
      const entry = number % this.#decisions;
      if (!this.#isAbout(entry, id)) continue;
      found.push({
        facts: this.#facts.read(entry),
        candidates: this.#candidatesOf(entry),
        comparedCount: this.#compared[entry]!,
        excluded: this.#excludedOf(entry),
        excludedCount: this.#excluded[entry]!,
      });
    }
    return found.reverse();
  }

  #isAbout(entry: number, id: string): boolean {
    if (id.length === 0 || this.#idLengths[entry] !== id.length) return false;
    const first = entry * maxIdLength;
    for (let unit = 0; unit < id.length; unit++) {
      if (this.#ids[first + unit] !== id.charCodeAt(unit)) return false;
    }
    return true;
  }

  #begin(): number {
    const number = this.#next++;
    const entry = number % this.#decisions;
    this.#idLengths[entry] = 0;
    this.#kept[entry] = 0;
    this.#compared[entry] = 0;
    this.#excluded[entry] = 0;
    return number;
  }

  #write(place: number, candidates: CandidateSet, index: number, cost: number): void {
    const at = place * width;
    this.#keys[place] = candidates.key[index]!;
    this.#numbers[at] = cost;
    this.#numbers[at + 1] = matchedInAll(candidates, index);
    this.#numbers[at + 2] = candidates.inFlight[index]!;
    this.#numbers[at + 3] = candidates.pendingPrefillTokens[index]!;
    this.#numbers[at + 4] = candidates.networkMs[index]!;
  }

  /** The place with the highest cost, the chosen one's left out. */
  #worstOf(first: number): number {
    let worst = first + 1;
    for (let place = first + 2; place < first + keptCandidates; place++) {
      if (this.#numbers[place * width]! > this.#numbers[worst * width]!) worst = place;
    }
    return worst;
  }

  #excludedOf(entry: number): readonly Excluded[] {
    const first = 2 * entry * keptExcluded;
    return Array.from({ length: Math.min(keptExcluded, this.#excluded[entry]!) }, (_, at) => ({
      key: this.#excludedTexts[first + 2 * at]!,
      reason: this.#excludedTexts[first + 2 * at + 1]!,
    }));
  }

  #candidatesOf(entry: number): readonly LoggedCandidate[] {
    const first = entry * keptCandidates;
    const read = (place: number): LoggedCandidate => {
      const [cost, matchedTokens, inFlight, pendingPrefillTokens, networkMs] = this.#numbers.subarray(place * width);
      return {
        key: this.#keys[place]!,
        cost: Number.isFinite(cost) ? cost! : null,
        matchedTokens: matchedTokens!,
        inFlight: inFlight!,
        pendingPrefillTokens: pendingPrefillTokens!,
        networkMs: Number.isNaN(networkMs) ? null : networkMs!,
      };
    };
    const [chosen, ...others] = Array.from({ length: this.#kept[entry]! }, (_, at) => read(first + at));
    if (chosen === undefined) return [];
    const byCost = (one: LoggedCandidate, other: LoggedCandidate): number =>
      (one.cost ?? Number.POSITIVE_INFINITY) - (other.cost ?? Number.POSITIVE_INFINITY) || 0;
    return [chosen, ...others.sort(byCost)];
  }
}
