import type { AdmissionConfig } from "@espalier/config";
import type { RequestView } from "@espalier/openai";
import type { FastifyRequest } from "fastify";
import { enginePriority } from "./engine-priority.ts";
import { readServiceClass, type ServiceClass } from "./service-class.ts";

export interface PlannedService {
  /** For the plan of the request; nothing where admission is off. */
  readonly service?: ServiceClass;
  /** What engines are told of it in the body, as JSON texts. */
  readonly bodyFields: Readonly<Record<string, string>>;
}

const noService: PlannedService = { bodyFields: {} };

/** @throws EspalierError `invalid_header` */
export function planService(config: AdmissionConfig, request: FastifyRequest, view: RequestView): PlannedService {
  if (!config.isOn) return noService;
  const written = { bodyPriority: view.priority, apiKey: request.apiKeyName };
  const service = readServiceClass(config, request.headers, written);
  const priority = enginePriority(config, view.endpoint, service.className, view.priority);
  return { service, bodyFields: priority === undefined ? noService.bodyFields : { priority: String(priority) } };
}
