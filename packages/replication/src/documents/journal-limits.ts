/** Bounds of a journal store. Beyond them an update is refused, and nothing of it applied. */
export interface JournalLimits {
  /** One update in bytes. Default: 4 MiB. */
  readonly maxUpdateBytes: number;
  /** Journals of other routers, dead ones that are still kept among them. Default: 512. */
  readonly maxDocuments: number;
  /** What one journal of another router may hold, in bytes. Default: 256 MiB. */
  readonly maxDocumentBytes: number;
  /** What the own journal may hold in bytes until all feeds are cut, which shortens it. Default: 128 MiB. */
  readonly maxOwnBytes: number;
  /** What it may hold at all: beyond, its oldest facts go, and who lacks them asks for a state. Default: 192 MiB. */
  readonly maxHeldBytes: number;
  /** Feeds, and claims, that one journal declares at a time. Default: 16,384. */
  readonly maxFeeds: number;
  /** Memory of the own journal's placement items in bytes: beyond, the oldest go. Default: 16 MiB. */
  readonly maxPlacementBytes: number;
  /** Routers of which dropped journals are remembered: beyond, the oldest are forgotten. Default: 4,096. */
  readonly maxDroppedRouters: number;
}

const mebibyte = 1_048_576;

export const defaultJournalLimits: JournalLimits = {
  maxUpdateBytes: 4 * mebibyte,
  maxDocuments: 512,
  maxDocumentBytes: 256 * mebibyte,
  maxOwnBytes: 128 * mebibyte,
  maxHeldBytes: 192 * mebibyte,
  maxFeeds: 16_384,
  maxPlacementBytes: 16 * mebibyte,
  maxDroppedRouters: 4_096,
};
