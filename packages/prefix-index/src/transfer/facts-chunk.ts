import type { Tier } from "../tiers.ts";

/** A part of what a target holds. `depths` are those of the holes. */
export type FactsChunk =
  | { readonly kind: "blocks"; readonly tier: Tier; readonly words: Uint32Array }
  | { readonly kind: "holes"; readonly words: Uint32Array; readonly depths: Uint32Array }
  | { readonly kind: "walked" };
