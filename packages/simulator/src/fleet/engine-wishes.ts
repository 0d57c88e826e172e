import { type AdmissionSettings, type EngineOrder, enginePlace } from "@espalier/admission";
import type { SimRequest } from "../clients/workload.ts";
import type { LegWishes } from "./sim-engine.ts";

/** How engines are told where requests stand. */
export interface OrderingRouter {
  readonly engineOrder?: EngineOrder;
  readonly admission?: AdmissionSettings | undefined;
}

export interface OrderedWork {
  /** By the router's wall clock. */
  readonly arrivedWallMs: number;
  /** What the engine is expected to compute on the prompt, in milliseconds. */
  readonly workMs: number;
}

/** What an engine is told of where a request stands, as the real router does; nothing where it takes them as they come. */
export function placeWish(
  { engineOrder, admission }: OrderingRouter,
  { className }: Pick<SimRequest, "className">,
  work: OrderedWork,
): Pick<LegWishes, "priority"> {
  if (engineOrder !== "shortest") return {};
  return { priority: enginePlace({ classesBelow: classesBelow(admission, className), ...work }) };
}

function classesBelow(admission: AdmissionSettings | undefined, className: string | undefined): number {
  if (!admission || className === undefined) return 0;
  const rankOf = (name: string): number => admission.classes.findIndex((one) => one.name === name);
  return rankOf(className) - rankOf(admission.defaultClass);
}
