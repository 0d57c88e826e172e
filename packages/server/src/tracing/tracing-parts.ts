import type { Clock, Logger, Meter, Random, Scheduler } from "@espalier/common";
import type { TracingConfig } from "@espalier/config";
import { createOtlpExporter, createSpanMeters, createTracing, type Tracing } from "@espalier/tracing";

export interface TracingPartsOptions {
  readonly config: TracingConfig;
  /** Tells routers of one service apart. */
  readonly instanceId: () => string;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** @returns undefined where nothing is traced */
export function createTracingParts({ config, meter, instanceId, ...parts }: TracingPartsOptions): Tracing | undefined {
  const { endpoint, headers, serviceName, sampleShare } = config;
  if (endpoint === undefined) return undefined;
  const revealed = Object.entries(headers).map(([name, secret]) => [name, secret.reveal()] as const);
  return createTracing({
    ...{ ...parts, serviceName, sampleShare },
    createExporter: () => createOtlpExporter({ endpoint, headers: Object.fromEntries(revealed) }),
    instanceId: instanceId(),
    meters: createSpanMeters(meter),
  });
}
