import type { Clock } from "@espalier/common";
import type { AdmissionConfig } from "@espalier/config";
import type { RequestView } from "@espalier/openai";
import type { FastifyRequest } from "fastify";
import type { BodyFields } from "../request/planned-request.ts";
import { enginePriority } from "./engine-priority.ts";
import { readServiceClass, type ServiceClass } from "./service-class.ts";

export interface PlannedService {
  /** For the plan of the request; nothing where admission is off. */
  readonly service?: ServiceClass;
  /** What engines are told of it in the body, as JSON texts, as long as nobody knows which engine that will be. */
  readonly bodyFields: BodyFields;
  /**
   * The same for an engine that is expected to compute so many milliseconds on its prompt; absent where that makes no
   * difference.
   */
  readonly fieldsFor?: (workMs: number) => BodyFields;
}

const noFields: BodyFields = {};

/** @throws EspalierError `invalid_header` */
export function planService(
  config: AdmissionConfig,
  request: FastifyRequest,
  view: RequestView,
  clock: Pick<Clock, "wallMs">,
): PlannedService {
  if (!config.isOn) return { bodyFields: noFields };
  const written = { bodyPriority: view.priority, apiKey: request.apiKeyName };
  const service = readServiceClass(config, request.headers, written);
  const { className } = service;
  const told = { endpoint: view.endpoint, className, written: view.priority, arrivedWallMs: clock.wallMs() };
  const priority = enginePriority(config, told);
  if (!priority) return { service, bodyFields: noFields };
  const fieldsFor = (workMs: number): BodyFields => ({ priority: String(priority(workMs)) });
  const bodyFields = fieldsFor(0);
  return config.engineOrder === "arrival" ? { service, bodyFields } : { service, bodyFields, fieldsFor };
}
