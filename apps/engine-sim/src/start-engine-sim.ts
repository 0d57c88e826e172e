import { createSeededRandom, systemRandom } from "@espalier/common";
import { createFaultBoard } from "./admin/faults.ts";
import { createStoredResponses } from "./api/stored-responses.ts";
import { createRequestLog } from "./engine/request-log.ts";
import { createSimulatedEngine } from "./engine/simulated-engine.ts";
import type { EngineContext } from "./http/engine-context.ts";
import { createListener, type Listener } from "./http/listener.ts";
import { createRequestHandler } from "./http/request-handler.ts";
import { type EngineSimOptions, type ResolvedOptions, resolveOptions } from "./options.ts";
import { createTimeDriver, type TimeDriver } from "./time-driver.ts";

/** Where one simulated engine listens. */
export interface RunningEngine {
  readonly id: string;
  /** `http://host:port` */
  readonly url: string;
}

export interface RunningEngineSim {
  readonly engines: readonly RunningEngine[];
  /** Closes every socket and forgets every request. */
  stop(): Promise<void>;
}

/** Requests that an engine's log keeps. */
const logCapacity = 1_000;

/** Answers of the Responses API that an engine keeps. */
const storedResponseCapacity = 1_000;

/** How far the hash seeds of neighbouring engines are apart: each life takes the next one. */
const seedStride = 1_000_003;

/**
 * Starts simulated engines, each behind its own HTTP server.
 *
 * @example
 * const sim = await startEngineSim({ engines: 2, speed: 50, models: ["tiny"] });
 * await fetch(`${sim.engines[0].url}/v1/models`);
 * await sim.stop();
 * @throws RangeError when an option makes no sense; the error of the socket when an address cannot be listened on
 */
export async function startEngineSim(options: EngineSimOptions = {}): Promise<RunningEngineSim> {
  const resolved = resolveOptions(options);
  const driver = createTimeDriver(resolved);
  const parts = Array.from({ length: resolved.engines }, (_, index) => createPart(resolved, driver, index));
  const stop = async (): Promise<void> => {
    driver.stop();
    await Promise.all(parts.map(({ listener }) => listener.stop()));
  };
  try {
    for (const { listener } of parts) await listener.listen();
  } catch (error) {
    await stop();
    throw error;
  }
  const host = resolved.host.includes(":") ? `[${resolved.host}]` : resolved.host;
  return { engines: parts.map(({ id, listener }) => ({ id, url: `http://${host}:${listener.port}` })), stop };
}

function createPart(options: ResolvedOptions, driver: TimeDriver, index: number): { id: string; listener: Listener } {
  const { parameters, models, clock, scheduler, naturalLengthMean, host, port, apiKey } = options;
  const seed = options.seed + index * seedStride;
  const id = `engine-${index}`;
  const context: EngineContext = {
    id,
    flavour: parameters.flavour,
    models,
    engine: createSimulatedEngine({ parameters, seed, driver }),
    clock,
    scheduler,
    naturalLengthMean,
    faults: createFaultBoard(createSeededRandom(seed)),
    log: createRequestLog(logCapacity),
    live: new Set(),
    storedResponses: createStoredResponses(storedResponseCapacity),
    newId: () => hexadecimal(systemRandom.integer(2 ** 32)) + hexadecimal(systemRandom.integer(2 ** 32)),
    refuseFor: (durationMs) => listener.refuseFor(durationMs),
  };
  const listener = createListener({
    host,
    port: port === 0 ? 0 : port + index,
    scheduler,
    onRequest: createRequestHandler({ context, apiKey }),
  });
  return { id, listener };
}

const hexadecimal = (value: number): string => value.toString(16).padStart(8, "0");
