import {
  added,
  amount,
  list,
  repeated,
  type SampleSums,
  scaledVarint,
  signedVarint,
  struct,
  text,
  varint,
  versioned,
} from "@espalier/core";
import {
  type LearnedTarget,
  type LearnedTimes,
  maxSamples,
  slowTiers,
  sumsOfFetch,
  sumsOfFit,
} from "./learned-times.ts";

/** Most targets of a pool in a note, those with the largest differences first. */
export const maxNotedTargets = 256;
/** Most tiers in a note: more than exist, for later ones. */
export const maxNotedTiers = 16;
/** Bound of a whole note; targets that do not fit are left out. */
export const maxTimesNoteBytes = 16_384;

/** UTF-8 bytes of a target's key. */
const maxKeyBytes = 255;
/** Everything except targets: nine varints, three tiers, and fifteen doubles. */
const headBytes = 240;
/** Most bytes of a target besides its key. */
const targetBytes = 12;
const encoder = new TextEncoder();

/** Longer times are published as this one; eleven days. */
const maxMs = 1e9;
const precise = scaledVarint(1e6, maxMs);
const age = scaledVarint(1, maxMs);
const sum = amount();

const timesNote = versioned(
  1,
  struct({
    msPerKilotoken: precise,
    msPerMegapair: precise,
    fixedMs: precise,
    weight: scaledVarint(10, maxSamples),
    msPerOutputToken: precise,
    answers: scaledVarint(1, maxSamples),
    ageMs: age,
    targets: list(
      struct({ key: text(maxKeyBytes), log: signedVarint(Number.MAX_SAFE_INTEGER, 1_000), known: scaledVarint(1_000) }),
      maxNotedTargets,
    ),
    tiers: added(
      list(
        struct({
          /** 0 for none of this version. */
          tier: varint(),
          msPerKilotoken: precise,
          weight: scaledVarint(10, maxSamples),
          ageMs: age,
        }),
        maxNotedTiers,
      ),
    ),
    sums: added(
      struct({
        /** From the diagonal on, row by row. */
        matrix: repeated(6, sum),
        right: repeated(3, sum),
        ofTiers: repeated("tiers", struct({ matrix: repeated(1, sum), right: repeated(1, sum) })),
      }),
    ),
  }),
);

export const timesNoteLayout = timesNote.layout;

/** Targets that do not fit are left out. */
export function writeTimesNote(times: LearnedTimes): Uint8Array {
  const { fit, sums, msPerOutputToken, answers, ageMs, fetches } = times;
  return timesNote.encode({
    ...fit,
    weight: sums.weight,
    msPerOutputToken,
    answers,
    ageMs,
    targets: notedTargets(times.targets),
    tiers: fetches.map(({ tier, sums, ...fetch }) => ({
      ...fetch,
      tier: 1 + slowTiers.indexOf(tier),
      weight: sums.weight,
    })),
    sums: {
      matrix: upperPlaces.map((place) => sums.matrix[place]!),
      right: Array.from({ length: 3 }, (_, row) => sums.right[row]!),
      ofTiers: fetches.map(({ sums }) => ({ matrix: [sums.matrix[0]!], right: [sums.right[0]!] })),
    },
  });
}

/**
 * Without sums, as older routers write it, a note counts as samples that agree with it. Tiers with unknown numbers are
 * ignored.
 *
 * @throws RangeError for bytes that are not such a note
 */
export function readTimesNote(bytes: Uint8Array): LearnedTimes {
  if (bytes.length > maxTimesNoteBytes) throw new RangeError(`a note of ${bytes.length} bytes`);
  const { msPerKilotoken, msPerMegapair, fixedMs, weight, tiers = [], sums: noted, ...times } = timesNote.decode(bytes);
  const fit = { msPerKilotoken, msPerMegapair, fixedMs };
  const fetches = tiers.flatMap(({ tier: number, weight, ...fetch }, at) => {
    const tier = slowTiers[number - 1];
    if (!tier) return [];
    const sums = noted ? { ...noted.ofTiers[at]!, weight } : sumsOfFetch(fetch.msPerKilotoken, weight);
    return { ...fetch, tier, sums };
  });
  const sums = noted
    ? { matrix: symmetric(noted.matrix), right: Float64Array.from(noted.right), weight }
    : sumsOfFit(fit, weight);
  return { ...times, fit, sums, fetches };
}

function symmetric(upper: readonly number[]): SampleSums["matrix"] {
  const matrix = new Float64Array(9);
  for (const [at, place] of upperPlaces.entries()) {
    matrix[place] = upper[at]!;
    matrix[3 * (place % 3) + Math.floor(place / 3)] = upper[at]!;
  }
  return matrix;
}

/** The entries of a symmetric 3x3 matrix that determine the others. */
const upperPlaces = [0, 1, 2, 4, 5, 8] as const;

function notedTargets(targets: readonly LearnedTarget[]): readonly LearnedTarget[] {
  const inOrder = [...targets].sort((one, other) => Math.abs(other.log) - Math.abs(one.log));
  const noted: LearnedTarget[] = [];
  let bytes = headBytes;
  for (const target of inOrder) {
    const keyBytes = encoder.encode(target.key).length;
    if (keyBytes > maxKeyBytes) continue;
    bytes += keyBytes + targetBytes;
    if (bytes > maxTimesNoteBytes || noted.length === maxNotedTargets) break;
    noted.push(target);
  }
  return noted;
}
