import type { RouterId } from "@espalier/common";

/** Routers that are told apart; of further ones it is not known which they are. */
export const maxNumberedRouters = 4_096;

/** Small numbers for other routers, which the index keeps with what they placed. 0 is this router. */
export interface RouterNumbers {
  /** The same for the same router, whatever its life. */
  numberOf(router: RouterId): number;
  routerOf(number: number): RouterId | undefined;
}

/** @param capacity routers that get a number of their own */
export function createRouterNumbers(capacity: number = maxNumberedRouters): RouterNumbers {
  const numbers = new Map<RouterId, number>();
  const routers: RouterId[] = [];
  return {
    numberOf(router) {
      const known = numbers.get(router);
      if (known !== undefined) return known;
      // The number after the last stands for all others.
      if (routers.length >= capacity) return capacity + 1;
      numbers.set(router, routers.push(router));
      return routers.length;
    },
    routerOf: (number) => routers[number - 1],
  };
}
