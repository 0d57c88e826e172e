/** What one message may hold at most. A message beyond any of them is refused as a whole. */
export interface DecodeLimits {
  readonly maxMessageBytes: number;
  readonly maxEvents: number;
  readonly maxHashes: number;
  readonly maxTokens: number;
}

/**
 * Far above what engines send (the captured ones reach 73 events and 11 kB in one message), and low enough that a
 * decoder never holds more than 8 bytes per hash, 4 per token and 37 per event of them: 26 MB in all.
 */
export const defaultDecodeLimits: DecodeLimits = {
  maxMessageBytes: 64 * 1024 * 1024,
  maxEvents: 65_536,
  maxHashes: 1_048_576,
  maxTokens: 4_194_304,
};

/** @throws RangeError for a limit that is not a whole number from 1 up to what an array of 32-bit words can hold */
export function checkDecodeLimits(limits: DecodeLimits): DecodeLimits {
  for (const [name, limit] of Object.entries(limits)) {
    if (!Number.isInteger(limit) || limit < 1 || limit > 2 ** 29) {
      throw new RangeError(`${name} must be a whole number from 1 to 2^29, not ${limit}`);
    }
  }
  return limits;
}
