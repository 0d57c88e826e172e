/** How an engine's blocks and the router's go together. */
export type BlockShape =
  /** An engine's block is so many blocks of the router, one or more. */
  | { readonly kind: "parts"; readonly partsPerBlock: number }
  /** So many blocks of the engine are a block of the router, two or more. */
  | { readonly kind: "span"; readonly nodesPerBlock: number };

/** The larger block is at most this many of the smaller. */
export const maxBlockRatio = 256;

/** @returns undefined when neither size is a multiple of the other, or the ratio is above `maxBlockRatio` */
export function blockShapeOf(sizes: { readonly engine: number; readonly router: number }): BlockShape | undefined {
  const { engine, router } = sizes;
  if (engine % router === 0 && engine / router <= maxBlockRatio) {
    return { kind: "parts", partsPerBlock: engine / router };
  }
  if (router % engine === 0 && router / engine <= maxBlockRatio) {
    return { kind: "span", nodesPerBlock: router / engine };
  }
  return undefined;
}
