import type { AdmissionMeters, ClassMeters } from "./admission-meters.ts";
import type { AdmissionTarget } from "./admission-target.ts";
import { ClassQueue } from "./class-queue.ts";
import type { FleetUsage } from "./fleet-usage.ts";
import type { AdmissionSettings, ClassSettings } from "./settings.ts";
import type { WaitingRequest } from "./waiting-request.ts";

/** What one more request weighs in a class's average of what caches lack. */
const shareMemory = 0.02;

/** One class of a pool: who waits in it, and what its requests have been like. */
export class ClassLine<Target extends AdmissionTarget> {
  readonly name: string;
  readonly settings: ClassSettings;
  /** 0 for the highest class. */
  readonly rank: number;
  readonly queue: ClassQueue<WaitingRequest<Target>>;
  readonly meters: ClassMeters;
  /** Part of a prompt that no cache has, on average. */
  #uncachedShare = 1;

  constructor(settings: ClassSettings, rank: number, parts: { meters: AdmissionMeters; fleet: FleetUsage }) {
    this.name = settings.name;
    this.settings = settings;
    this.rank = rank;
    this.queue = new ClassQueue(settings, parts.fleet);
    this.meters = parts.meters.of(settings.name);
  }

  /** Tokens of such a prompt that an engine will have to compute, as was usual lately. */
  expectUncached(promptTokens: number): number {
    return Math.max(1, promptTokens * this.#uncachedShare);
  }

  /** An engine has to compute so many tokens of a prompt. */
  computes(promptTokens: number, uncachedTokens: number): void {
    this.meters.tokens("prompt", uncachedTokens);
    const share = promptTokens > 0 ? Math.min(1, uncachedTokens / promptTokens) : 1;
    this.#uncachedShare += shareMemory * (share - this.#uncachedShare);
  }
}

/** The lines of all classes, the highest first. */
export function createLines<Target extends AdmissionTarget>(
  { classes }: AdmissionSettings,
  parts: { readonly meters: AdmissionMeters; readonly fleet: FleetUsage },
): readonly ClassLine<Target>[] {
  return classes.map((settings, rank) => new ClassLine<Target>(settings, rank, parts));
}
