import type { AdmissionConfig } from "@espalier/config";
import type { Endpoint } from "@espalier/openai";

/**
 * The number by which an engine's own scheduler knows a class: 0 for the default class, as for a request that says
 * nothing; one more or less for each class beside it.
 *
 * @returns undefined when the body can go as it is
 */
export function enginePriority(
  { classes, defaultClass, enginePriority: direction }: AdmissionConfig,
  { family, kind }: Pick<Endpoint, "family" | "kind">,
  className: string | undefined,
  written: number | undefined,
): number | undefined {
  if (direction === "off" || kind !== "generate" || family === "anthropic") return undefined;
  const rankOf = (name: string): number => classes.findIndex((one) => one.name === name);
  const below = rankOf(className ?? defaultClass) - rankOf(defaultClass);
  const priority = direction === "lower-first" ? below : -below;
  return priority === (written ?? 0) ? undefined : priority;
}
