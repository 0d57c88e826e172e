import type { EngineEpoch } from "./engine-epoch.ts";

/** What a number in a journal's items denotes: a target, and one of its epochs if it has a feed. */
export interface FeedDeclaration {
  readonly target: string;
  /** Null for placements at a target without a known epoch. */
  readonly epoch: EngineEpoch | null;
}

/** What a number in the items of one journal denotes. The object stays the same while the journal has the number. */
export type DeclarationOf = (feed: number) => FeedDeclaration | undefined;
