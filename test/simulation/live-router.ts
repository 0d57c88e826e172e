import type { PrefixIndex } from "@espalier/prefix-index";
import type { SharedTier } from "@espalier/shared-tree";
import type { SimFleet } from "@espalier/simulator";

type RouterView = NonNullable<SimFleet["routerNodes"][number]["router"]>["view"];

/** The view of a router with links of its own. */
interface RealView extends RouterView {
  readonly index: PrefixIndex;
  readonly tier: SharedTier;
}

/** A router whose process runs now, seen from inside. */
export interface LiveRouter {
  readonly number: number;
  /** Of the process. */
  readonly epoch: number;
  readonly view: RealView;
  /** What the router itself has in flight at each engine. */
  readonly ownLoads: readonly { readonly key: string; readonly load: OwnLoad }[];
  readonly isPaused: boolean;
  readonly isLeaving: boolean;
  readonly timers: number;
}

interface OwnLoad {
  readonly inFlight: number;
  readonly pendingPrefillTokens: number;
  readonly decodeTokens: number;
  readonly pendingWorkMs: number;
}

export function liveRouters(fleet: SimFleet): LiveRouter[] {
  return fleet.routerNodes.flatMap(({ number, epochs, router, time, isLeaving }) => {
    const view = router?.view;
    if (!view || !isReal(view)) return [];
    const { isPaused, pendingCount: timers } = time;
    return [{ number, epoch: epochs, view, ownLoads: router?.targets ?? [], isPaused, isLeaving, timers }];
  });
}

function isReal(view: RouterView): view is RealView {
  return "tier" in view && "index" in view;
}
