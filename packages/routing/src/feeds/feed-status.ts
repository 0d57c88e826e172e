import type { TierName } from "@espalier/prefix-index";

/** What is known of a target's feed, by whoever reads it. */
export interface FeedStatus {
  readonly target: string;
  readonly state: string;
  readonly reason: string;
  /** What this router has to do with it, and which router reads it; null where each reads for itself. */
  readonly role: "owner" | "backup" | "none" | null;
  readonly owner: string | null;
  /** Blocks of the index that the target has announced, by tier. */
  readonly blocks: Readonly<Record<TierName, number>>;
  /** The engine's blocks whose place in a prompt is not known. */
  readonly floatingBlocks: number;
  /** Why what is read cannot be used: block sizes that do not fit. */
  readonly unusable: string | null;
}
