import { ByteReader, ByteWriter } from "@espalier/core";

/** Engines by what they do. `both` is for engines that do both. */
export const engineRoles = ["both", "prefill", "decode"] as const;
export type DemandedRole = (typeof engineRoles)[number];

/** What one router measures of the load of one model and its adapters. The numbers of several routers add up. */
export interface DemandSample {
  readonly model: string;
  readonly requestsPerS: number;
  /** Engines that compute the prompts of requests as they arrive, without rest. */
  readonly prefill: number;
  /** Tokens of answers that engines have to write in a second, for requests as they arrive. */
  readonly outputPerS: number;
  /** Requests that wait in the router. */
  readonly waiting: number;
  /** The same two for requests that wait, so that all are in time. */
  readonly waitingPrefill: number;
  readonly waitingOutputPerS: number;
  /** Milliseconds since the last request. */
  readonly idleMs: number;
  /** Engines that the router asks for, by role; of several routers the greatest counts. */
  readonly wanted: Readonly<Record<DemandedRole, number>>;
}

/** Models in a note. */
export const maxNotedModels = 32;
/** UTF-8 bytes of a model's name. */
export const maxModelBytes = 200;
/** The largest number that a note may claim, of anything. */
const maxClaim = 1e9;
const version = 1;

const numbers = [
  "requestsPerS",
  "prefill",
  "outputPerS",
  "waiting",
  "waitingPrefill",
  "waitingOutputPerS",
  "idleMs",
] as const satisfies readonly (keyof DemandSample)[];

/**
 * Layout: version, a byte; number of models as a varint; for each its name as text, seven doubles in the order of
 * `DemandSample`, and three varints: the engines it wants, by role.
 */
export function writeDemandNote(samples: readonly DemandSample[]): Uint8Array {
  const writer = new ByteWriter();
  writer.u8(version);
  writer.varint(samples.length);
  for (const sample of samples) {
    writer.text(sample.model);
    for (const name of numbers) writer.f64(Math.min(maxClaim, sample[name]));
    for (const role of engineRoles) writer.varint(Math.min(maxClaim, sample.wanted[role]));
  }
  return writer.copy();
}

/**
 * Bytes after the models are ignored, so that a later version may add to a note.
 *
 * @throws RangeError for bytes that are not such a note
 */
export function readDemandNote(bytes: Uint8Array): readonly DemandSample[] {
  const reader = ByteReader.ofVersion(version, bytes);
  const count = reader.varint();
  if (count > maxNotedModels) throw new RangeError(`${count} models are too many`);
  const claimed = (value: number): number => {
    if (!(value >= 0 && value <= maxClaim)) throw new RangeError(`${value} is no demand`);
    return value;
  };
  return Array.from({ length: count }, () => {
    const model = reader.text(maxModelBytes);
    const [requestsPerS, prefill, outputPerS, waiting, waitingPrefill, waitingOutputPerS, idleMs] = numbers.map(() =>
      claimed(reader.f64()),
    ) as [number, number, number, number, number, number, number];
    const [both, forPrefill, decode] = engineRoles.map(() => claimed(reader.varint())) as [number, number, number];
    return {
      ...{ model, requestsPerS, prefill, outputPerS, waiting, waitingPrefill, waitingOutputPerS, idleMs },
      wanted: { both, prefill: forPrefill, decode },
    };
  });
}
