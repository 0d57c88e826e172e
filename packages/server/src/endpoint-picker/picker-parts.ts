import { type Cancel, counterOf, type Logger, type Meter, type Startable } from "@espalier/core";
import type { CompiledConfig, EndpointPickerConfig } from "../config/index.ts";
import { createPickerServer, type GrpcTls } from "../grpc/index.ts";
import { readTls } from "../lifecycle/certificates.ts";
import type { RouterContext } from "../router-context.ts";
import type { PickerMeters } from "./gateway-carrier.ts";
import { type GatewayParts, GatewayRequest } from "./gateway-request.ts";
import { UnseenAnswers } from "./unseen-answers.ts";

/** The router as an endpoint picker of Envoy gateways. */
export interface EndpointPicker extends Startable {
  /** `host:port` of `ext_proc`, and of its health checks; empty before the start. */
  readonly address: string;
  readonly healthAddress: string;
  setTls(tls: GrpcTls): void;
  /** Accepts no new connections; open exchanges go on. */
  drain(): void;
}

interface EndpointPickerOptions {
  readonly settings: EndpointPickerConfig;
  readonly config: CompiledConfig;
  readonly context: RouterContext;
  readonly isReady: () => boolean;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** Metrics of requests that a gateway sends. */
export function createPickerMeters(meter: Meter): PickerMeters {
  return {
    servedElsewhere: counterOf(
      meter,
      "espalier_picker_served_elsewhere_total",
      "Gateway requests served by another engine than the chosen one.",
    ),
    unseen: counterOf(
      meter,
      "espalier_picker_unobserved_responses_total",
      "Gateway requests whose answers the gateway did not stream to the router; their end is estimated.",
    ),
  };
}

const sweepMs = 50;
/** Added to a body's limit: the rest of a message. */
const messageRoomBytes = 1_048_576;

export function createEndpointPicker(options: EndpointPickerOptions): EndpointPicker {
  const { settings, config, context, isReady, logger, meter } = options;
  const { clock, scheduler } = context;
  const unseen = new UnseenAnswers({ clock, releaseAfterMs: settings.releaseAfterMs });
  const waiting = new Set<GatewayRequest>();
  const parts: GatewayParts = {
    context,
    settings,
    meters: createPickerMeters(meter),
    waiting,
    unseen,
    answerWithinMs: settings.answerWithinMs,
    receiveWithinMs: config.timeouts.requestReceiveMs,
    maxBodyBytes: config.limits.maxBodyBytes,
  };
  const server = createPickerServer({
    host: settings.host,
    port: settings.port,
    healthPort: settings.healthPort,
    tls: settings.tls && readTls(settings.tls),
    maxMessageBytes: config.limits.maxBodyBytes + messageRoomBytes,
    isReady,
    onStream: (stream) => new GatewayRequest(parts, stream),
    logger,
  });
  let cancelSweep: Cancel = () => {};
  return {
    get address() {
      return server.address;
    },
    get healthAddress() {
      return server.healthAddress;
    },
    setTls: server.setTls,
    drain: server.drain,
    async start() {
      await server.start();
      cancelSweep = scheduler.every(sweepMs, () => {
        const nowMs = clock.nowMs();
        for (const request of waiting) request.expire(nowMs);
        unseen.sweep();
      });
      logger.info("endpoint picker", { address: server.address, health: server.healthAddress });
    },
    async stop() {
      cancelSweep();
      await server.stop();
      unseen.stop();
    },
  };
}
