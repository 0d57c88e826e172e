import { enginePlace } from "@espalier/admission";
import type { AdmissionConfig } from "@espalier/config";
import type { Endpoint } from "@espalier/openai";

/** What is known of one request. */
export interface PrioritizedRequest {
  readonly endpoint: Pick<Endpoint, "family" | "kind">;
  /** The default one when undefined. */
  readonly className: string | undefined;
  /** `priority` in the client's body. */
  readonly written: number | undefined;
  /** By the wall clock. */
  readonly arrivedWallMs: number;
}

/**
 * What an engine's own scheduler is told of a request.
 *
 * @param workMs what the engine is expected to compute on its prompt, in milliseconds
 */
export type EnginePriority = (workMs: number) => number;

/**
 * The number by which engines' own schedulers know a request's class: 0 for the default class, as for a request that says
 * nothing; one more or less for each class beside it. With an order of their own inside classes, its place in that.
 *
 * @returns undefined when the body can go as it is
 */
export function enginePriority(config: AdmissionConfig, request: PrioritizedRequest): EnginePriority | undefined {
  const { classes, defaultClass, enginePriority: direction, engineOrder } = config;
  const { endpoint, className, written, arrivedWallMs } = request;
  if (direction === "off" || endpoint.kind !== "generate" || endpoint.family === "anthropic") return undefined;
  const rankOf = (name: string): number => classes.findIndex((one) => one.name === name);
  const classesBelow = rankOf(className ?? defaultClass) - rankOf(defaultClass);
  if (engineOrder === "shortest") return (workMs) => enginePlace({ classesBelow, arrivedWallMs, workMs });
  const priority = direction === "lower-first" ? classesBelow : -classesBelow;
  return priority === (written ?? 0) ? undefined : () => priority;
}
