import type { Random } from "@espalier/common";

/** One decoder of bytes that others write. */
export interface FuzzTarget {
  readonly name: string;
  /** Bytes that it reads, to be changed; at least one. */
  readonly seeds: readonly Uint8Array[];
  /**
   * Reads the bytes and checks what comes out, such as that it is within its bounds.
   *
   * @param random for choices of the test's own, such as where a stream is cut into chunks; the same for the same case
   * @throws what `refuses` knows, for bytes that are refused; anything else is a finding
   */
  readonly read: (bytes: Uint8Array, random: Random) => unknown;
  /** Whether what was thrown is the documented error; `RangeError` unless given. */
  readonly refuses?: (thrown: unknown) => boolean;
}
