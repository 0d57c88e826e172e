import { ByteReader, ByteWriter, type SampleSums } from "@espalier/core";
import {
  type LearnedFetch,
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

const version = 1;
/** UTF-8 bytes of a target's key. */
const maxKeyBytes = 255;
/** Everything except targets: nine varints, three tiers, and fifteen doubles. */
const headBytes = 240;
/** Most bytes of a target besides its key. */
const targetBytes = 12;
const encoder = new TextEncoder();

/**
 * Layout: version, a byte; varints: nanoseconds for a thousand tokens, for a million pairs, fixed; tenths of samples;
 * nanoseconds for an output token; answers; age in milliseconds; number of targets. A target is its key as text, its
 * logarithm times a thousand as a signed varint, and its known share times a thousand. Then, as varints, the number of
 * tiers, and for each: its number, nanoseconds for a thousand tokens, tenths of samples, age in milliseconds. Last, as
 * doubles, the sums behind these numbers: of the fit, the matrix entries from the diagonal on, row by row, and the
 * right side; of each tier, its matrix and right side.
 */
export function writeTimesNote(times: LearnedTimes): Uint8Array {
  const { fit, sums, msPerOutputToken, answers, ageMs } = times;
  const writer = new ByteWriter();
  const targets = notedTargets(times.targets);
  writer.u8(version);
  for (const ms of [fit.msPerKilotoken, fit.msPerMegapair, fit.fixedMs]) writer.varint(nanoseconds(ms));
  writer.varint(Math.round(10 * Math.min(maxSamples, sums.weight)));
  writer.varint(nanoseconds(msPerOutputToken));
  writer.varint(Math.round(Math.min(maxSamples, answers)));
  writer.varint(Math.round(Math.min(maxMs, ageMs)));
  writer.varint(targets.length);
  for (const { key, log, known } of targets) {
    writer.text(key);
    writer.signedVarint(Math.round(1_000 * log));
    writer.varint(Math.round(1_000 * known));
  }
  writer.varint(times.fetches.length);
  for (const { tier, msPerKilotoken, sums: fetched, ageMs: fetchAgeMs } of times.fetches) {
    writer.varint(1 + slowTiers.indexOf(tier));
    writer.varint(nanoseconds(msPerKilotoken));
    writer.varint(Math.round(10 * Math.min(maxSamples, fetched.weight)));
    writer.varint(Math.round(Math.min(maxMs, fetchAgeMs)));
  }
  for (const place of upperPlaces) writer.f64(sums.matrix[place]!);
  for (let row = 0; row < 3; row++) writer.f64(sums.right[row]!);
  for (const { sums: fetched } of times.fetches) {
    writer.f64(fetched.matrix[0]!);
    writer.f64(fetched.right[0]!);
  }
  return writer.copy();
}

/**
 * A note may end after its targets or its tiers, as older routers write it. Then its sums are those of samples that
 * agree with it. Bytes after the sums are ignored, so that a later version may add to a note, and so are tiers with
 * unknown numbers.
 *
 * @throws RangeError for bytes that are not such a note
 */
export function readTimesNote(bytes: Uint8Array): LearnedTimes {
  if (bytes.length > maxTimesNoteBytes) throw new RangeError(`a note of ${bytes.length} bytes`);
  const reader = ByteReader.ofVersion(version, bytes);
  const milliseconds = (): number => reader.varint() / 1e6;
  const fit = { msPerKilotoken: milliseconds(), msPerMegapair: milliseconds(), fixedMs: milliseconds() };
  const weight = reader.varint() / 10;
  const msPerOutputToken = milliseconds();
  const answers = reader.varint();
  const ageMs = reader.varint();
  const count = reader.varint();
  if (count > maxNotedTargets) throw new RangeError(`${count} targets are too many`);
  const targets: LearnedTarget[] = [];
  for (let at = 0; at < count; at++) {
    const key = reader.text(maxKeyBytes);
    targets.push({ key, log: reader.signedVarint() / 1_000, known: reader.varint() / 1_000 });
  }
  const tiers = readTiers(reader);
  const isOlder = reader.remaining === 0;
  const sums = isOlder ? sumsOfFit(fit, weight) : readFitSums(reader, weight);
  const fetches: LearnedFetch[] = [];
  for (const { tier, samples, ...fetch } of tiers) {
    const fetched = isOlder
      ? sumsOfFetch(fetch.msPerKilotoken, samples)
      : { matrix: [reader.f64()], right: [reader.f64()], weight: samples };
    if (tier) fetches.push({ ...fetch, tier, sums: fetched });
  }
  return { fit, sums, msPerOutputToken, answers, ageMs, targets, fetches };
}

function readTiers(reader: ByteReader) {
  const count = reader.remaining > 0 ? reader.varint() : 0;
  if (count > maxNotedTiers) throw new RangeError(`${count} tiers are too many`);
  return Array.from({ length: count }, () => {
    const tier = slowTiers[reader.varint() - 1];
    return { tier, msPerKilotoken: reader.varint() / 1e6, samples: reader.varint() / 10, ageMs: reader.varint() };
  });
}

function readFitSums(reader: ByteReader, weight: number): SampleSums {
  const matrix = new Float64Array(9);
  for (const place of upperPlaces) {
    const entry = reader.f64();
    matrix[place] = entry;
    matrix[3 * (place % 3) + Math.floor(place / 3)] = entry;
  }
  return { matrix, right: Float64Array.from({ length: 3 }, () => reader.f64()), weight };
}

/** The entries of a symmetric 3x3 matrix that determine the others. */
const upperPlaces = [0, 1, 2, 4, 5, 8] as const;

/** Longer times are published as this one; eleven days. */
const maxMs = 1e9;
const nanoseconds = (ms: number): number => Math.round(Math.min(maxMs, ms) * 1e6);

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
