import { ByteReader, ByteWriter } from "@espalier/common";
import { type LearnedFetch, type LearnedTarget, type LearnedTimes, maxSamples } from "./learned-times.ts";
import { slowTiers } from "./slow-tiers.ts";

/** Targets of a pool that a note tells of, those that differ most first. */
export const maxNotedTargets = 256;
/** Tiers that a note may tell of: more than there are, for those to come. */
export const maxNotedTiers = 16;
/** Of a whole note; targets that it has no room for are left out. */
export const maxTimesNoteBytes = 16_384;

const version = 1;
/** UTF-8 bytes of a target's key. */
const maxKeyBytes = 255;
/** A target takes at most so many besides its key. */
const targetBytes = 12;
const encoder = new TextEncoder();

/**
 * Layout: version, a byte; varints: nanoseconds for a thousand tokens, for a million pairs, fixed; tenths of samples;
 * nanoseconds for an output token; answers; age in milliseconds; number of targets. A target is its key as text, a thousand
 * times its logarithm as a signed varint, and a thousand times how much of it is known. Then, as varints, the number of
 * tiers, and of each: its number, nanoseconds for a thousand tokens, tenths of samples, age in milliseconds.
 */
export function writeTimesNote(times: LearnedTimes): Uint8Array {
  const { fit, samples, msPerOutputToken, answers, ageMs } = times;
  const writer = new ByteWriter();
  const targets = notedTargets(times.targets);
  writer.u8(version);
  for (const ms of [fit.msPerKilotoken, fit.msPerMegapair, fit.fixedMs]) writer.varint(nanoseconds(ms));
  writer.varint(Math.round(10 * Math.min(maxSamples, samples)));
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
  for (const { tier, msPerKilotoken, samples: fetched, ageMs: fetchAgeMs } of times.fetches) {
    writer.varint(1 + slowTiers.indexOf(tier));
    writer.varint(nanoseconds(msPerKilotoken));
    writer.varint(Math.round(10 * Math.min(maxSamples, fetched)));
    writer.varint(Math.round(Math.min(maxMs, fetchAgeMs)));
  }
  return writer.copy();
}

/**
 * A note may end with its targets. Bytes behind the tiers are left alone, so that a later version may add to it, and tiers of
 * a higher number are passed over.
 *
 * @throws RangeError for bytes that are no such note
 */
export function readTimesNote(bytes: Uint8Array): LearnedTimes {
  if (bytes.length > maxTimesNoteBytes) throw new RangeError(`a note of ${bytes.length} bytes`);
  const reader = new ByteReader(bytes);
  const found = reader.u8();
  if (found !== version) throw new RangeError(`version ${found} is not known`);
  const milliseconds = (): number => reader.varint() / 1e6;
  const fit = { msPerKilotoken: milliseconds(), msPerMegapair: milliseconds(), fixedMs: milliseconds() };
  const samples = reader.varint() / 10;
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
  return { fit, samples, msPerOutputToken, answers, ageMs, targets, fetches: readFetches(reader) };
}

function readFetches(reader: ByteReader): readonly LearnedFetch[] {
  const fetches: LearnedFetch[] = [];
  const count = reader.remaining > 0 ? reader.varint() : 0;
  if (count > maxNotedTiers) throw new RangeError(`${count} tiers are too many`);
  for (let at = 0; at < count; at++) {
    const tier = slowTiers[reader.varint() - 1];
    const fetch = { msPerKilotoken: reader.varint() / 1e6, samples: reader.varint() / 10, ageMs: reader.varint() };
    if (tier) fetches.push({ tier, ...fetch });
  }
  return fetches;
}

/** Longer times are told as this one; eleven days. */
const maxMs = 1e9;
const nanoseconds = (ms: number): number => Math.round(Math.min(maxMs, ms) * 1e6);

function notedTargets(targets: readonly LearnedTarget[]): readonly LearnedTarget[] {
  const inOrder = [...targets].sort((one, other) => Math.abs(other.log) - Math.abs(one.log));
  const noted: LearnedTarget[] = [];
  let bytes = 112;
  for (const target of inOrder) {
    const keyBytes = encoder.encode(target.key).length;
    if (keyBytes > maxKeyBytes) continue;
    bytes += keyBytes + targetBytes;
    if (bytes > maxTimesNoteBytes || noted.length === maxNotedTargets) break;
    noted.push(target);
  }
  return noted;
}
