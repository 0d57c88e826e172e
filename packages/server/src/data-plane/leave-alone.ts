import type { Selection } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PlannedRequest } from "./planned-request.ts";

/**
 * Has an engine rest that has said when to come again (`Retry-After`), as long as there is another one for the model. A last
 * one is asked anyway: it knows best when it has room.
 *
 * @param pauseMs what it asked for; undefined where it did not say
 */
export function leaveAlone(
  { targets }: Pick<PlannedRequest, "targets">,
  selection: Selection<Target> | undefined,
  pauseMs: number | undefined,
): void {
  if (!selection || !pauseMs) return;
  const { engine } = selection.target;
  if (targets.some((other) => other.usable && other.engine !== engine)) engine.rest(pauseMs);
}
