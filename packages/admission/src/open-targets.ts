import type { AdmissionTarget, OthersLoad } from "./admission-target.ts";
import type { Lanes } from "./lanes.ts";
import { hasRoom, type Knee, type PendingBounds, pendingTokens, requestsAt } from "./room.ts";
import type { AdmissionSettings } from "./settings.ts";

/**
 * Prompt tokens that wait at the engines outside the lanes, at weight 1, from which on those who do not yield may use
 * lanes as well.
 */
const crowdedTokens = 8_192;

/** What a request wants of a target. */
export interface WantedRoom extends PendingBounds {
  /** It keeps to the lanes. */
  readonly yields: boolean;
  /** The only engine that will do. */
  readonly onlyEngine: string | undefined;
}

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
  find(targets: readonly Target[], wanted: WantedRoom, nowMs: number): readonly Target[] | undefined {
    const { onlyEngine, yields } = wanted;
    const lanes = this.#lanes.among(targets, nowMs);
    let usable = 0;
    let open = 0;
    for (let place = 0; place < targets.length; place++) {
      const target = targets[place]!;
      if (!isCandidate(target, onlyEngine)) continue;
      usable += 1;
      if (this.#isOpen(target, wanted, lanes?.[place])) open += 1;
    }
    if (open === usable || (open > 0 && !lanes)) return targets;
    if (open > 0) {
      return targets.filter(
        (target, place) => isCandidate(target, onlyEngine) && this.#isOpen(target, wanted, lanes?.[place]),
      );
    }
    if (!lanes || yields) return undefined;
    // Nothing outside the lanes will do: better a lane than to wait.
    const anywhere = targets.filter((target) => {
      return isCandidate(target, onlyEngine) && hasRoom(target, wanted, this.#knee);
    });
    return anywhere.length > 0 ? anywhere : undefined;
  }

  /** @param lane 1 for a lane, 0 for another engine, undefined while there are no lanes */
  #isOpen(target: Target, wanted: WantedRoom, lane: number | undefined): boolean {
    if (!hasRoom(target, wanted, this.#knee)) return false;
    if (lane === undefined) return true;
    const { others } = this.#knee;
    if (wanted.yields) return lane === 1 || requestsAt(target, others) === 0;
    return lane === 0 && pendingTokens(target, others) < crowdedTokens;
  }
}

function isCandidate({ usable, engine }: AdmissionTarget, onlyEngine: string | undefined): boolean {
  return usable && engine.role !== "prefill" && (onlyEngine === undefined || engine.id === onlyEngine);
}
