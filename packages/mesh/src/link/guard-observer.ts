import { counterBy, EspalierError, type Logger, type Meter } from "@espalier/core";
import type { Link, LinkObserver } from "./link.ts";

/** Whether an exception of an observer says that the peer sent what no router may: its link is closed then. */
function isPeersFault(error: unknown): error is EspalierError {
  return (
    error instanceof EspalierError && (error.code === "mesh_frame_invalid" || error.code === "mesh_update_refused")
  );
}

/**
 * An observer of which only the peers' faults come back. Everything else that it throws is a fault of this router: it is
 * counted and logged, the link goes on, and so does the process. Closing the link would make both ends dial and fail again,
 * for as long as the peer has what cannot be handled here.
 */
export function guardObserver(
  observer: LinkObserver,
  { logger, meter }: { readonly logger: Logger; readonly meter: Meter },
): LinkObserver {
  const failed = counterBy<keyof LinkObserver>(
    meter,
    "event",
    "espalier_mesh_handler_failures_total",
    "Link events that failed in a handler of this router; the links continue.",
  );
  const guard = (event: keyof LinkObserver, peer: string, handle: () => void): void => {
    try {
      handle();
    } catch (error) {
      if (event === "frame" && isPeersFault(error)) throw error;
      failed(event);
      logger.error("link event handler failed; link continues", { event, peer, error });
    }
  };
  const nameOf = (link: Link): string => link.peer.origin.router;
  return {
    up: (link) => guard("up", nameOf(link), () => observer.up(link)),
    down: (link, why) => guard("down", nameOf(link), () => observer.down(link, why)),
    frame: (link, channel, frame) => guard("frame", nameOf(link), () => observer.frame(link, channel, frame)),
    drained: (link, channel) => guard("drained", nameOf(link), () => observer.drained(link, channel)),
    dialFailed: (address, why) => guard("dialFailed", address, () => observer.dialFailed(address, why)),
  };
}
