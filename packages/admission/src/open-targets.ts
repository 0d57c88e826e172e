import type { AdmissionTarget, OthersLoad } from "./admission-target.ts";
import type { Lanes } from "./lanes.ts";
import { hasRoom, type Knee, pendingTokens, requestsAt } from "./room.ts";
import type { AdmissionSettings, ClassSettings } from "./settings.ts";

/**
 * Prompt tokens that wait at the engines outside the lanes, at weight 1, from which on those who do not yield may use
 * lanes as well.
 */
const crowdedTokens = 8_192;

/** Finds the targets that a request of a class may go to now. */
export class OpenTargets<Target extends AdmissionTarget> {
  readonly #knee: Knee;
  readonly #lanes: Lanes;

  constructor(settings: AdmissionSettings, others: OthersLoad, lanes: Lanes) {
    this.#knee = { maxWaiting: settings.maxWaiting, maxKvUse: settings.maxKvUse, others };
    this.#lanes = lanes;
  }

  /**
   * A request waits while no engine has room for it. While one has, the choice is among all of them: who keeps a prompt from
   * the engine that has most of it cached makes another one compute it, and a fleet that was near its knee is past it.
   *
   * @returns the same array when all that are usable will do, or none is usable: then waiting would help nobody; with lanes
   *   those on its side of them that have room; undefined when the request has to wait
   */
  find(
    targets: readonly Target[],
    settings: ClassSettings,
    onlyEngine: string | undefined,
    nowMs: number,
  ): readonly Target[] | undefined {
    const lanes = this.#lanes.among(targets, nowMs);
    let usable = 0;
    let open = 0;
    for (let place = 0; place < targets.length; place++) {
      const target = targets[place]!;
      if (!isCandidate(target, onlyEngine)) continue;
      usable += 1;
      if (this.#isOpen(target, settings, lanes?.[place])) open += 1;
    }
    if (open === usable || (open > 0 && !lanes)) return targets;
    if (open > 0) {
      return targets.filter(
        (target, place) => isCandidate(target, onlyEngine) && this.#isOpen(target, settings, lanes?.[place]),
      );
    }
    if (!lanes || settings.yields) return undefined;
    // Nothing outside the lanes will do: better a lane than to wait.
    const anywhere = targets.filter((target) => {
      return isCandidate(target, onlyEngine) && hasRoom(target, settings.maxPendingTokens, this.#knee);
    });
    return anywhere.length > 0 ? anywhere : undefined;
  }

  /** @param lane 1 for a lane, 0 for another engine, undefined while there are no lanes */
  #isOpen(target: Target, { maxPendingTokens, yields }: ClassSettings, lane: number | undefined): boolean {
    if (!hasRoom(target, maxPendingTokens, this.#knee)) return false;
    if (lane === undefined) return true;
    const { others } = this.#knee;
    if (yields) return lane === 1 || requestsAt(target, others) === 0;
    return lane === 0 && pendingTokens(target, others) < crowdedTokens;
  }
}

function isCandidate({ usable, engine }: AdmissionTarget, onlyEngine: string | undefined): boolean {
  return usable && engine.role !== "prefill" && (onlyEngine === undefined || engine.id === onlyEngine);
}
