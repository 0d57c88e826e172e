import { amount, capped, list, struct, text, varint, versioned } from "@espalier/core";

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
  readonly desired: Readonly<Record<DemandedRole, number>>;
}

/** Models in a note. */
export const maxNotedModels = 32;
/** UTF-8 bytes of a model's name. */
export const maxModelBytes = 200;
/** The largest number that a note may claim, of anything. */
const maxClaim = 1e9;

const claim = capped(amount, maxClaim);
const desired = capped(varint, maxClaim);
const demandNote = versioned(
  1,
  list(
    struct({
      model: text(maxModelBytes),
      requestsPerS: claim,
      prefill: claim,
      outputPerS: claim,
      waiting: claim,
      waitingPrefill: claim,
      waitingOutputPerS: claim,
      idleMs: claim,
      desired: struct({ both: desired, prefill: desired, decode: desired }),
    }),
    maxNotedModels,
  ),
);

export const demandNoteLayout = demandNote.layout;

export const writeDemandNote: (samples: readonly DemandSample[]) => Uint8Array = demandNote.encode;

/** @throws RangeError for bytes that are not such a note */
export const readDemandNote: (bytes: Uint8Array) => readonly DemandSample[] = demandNote.decode;
