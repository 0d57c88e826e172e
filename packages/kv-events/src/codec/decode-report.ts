/** Why a whole message is refused. */
export const refusalReasons = [
  /** The bytes end before the values they announce. */
  "truncated",
  /** A byte that msgpack never uses. */
  "invalid",
  /** Well-formed msgpack, but no event message. */
  "envelope",
  /** Something follows the message. */
  "trailing",
  "too-many-bytes",
  "too-many-events",
  "too-many-hashes",
  "too-many-tokens",
] as const;

export type RefusalReason = (typeof refusalReasons)[number];

/** How the decoding of one message went. */
export interface DecodeReport {
  /** Undefined when the message was accepted. A refused one leaves an empty batch. */
  readonly refused: RefusalReason | undefined;
  /** Events in the batch. */
  readonly events: number;
  /** Events left out because their tag is not known. */
  readonly unknownEvents: number;
  /** Events left out because a field is missing or of another type than it should be. */
  readonly malformedEvents: number;
  /** Events in the batch whose medium is not known; they are in the tier `external`. */
  readonly unknownMedia: number;
}
