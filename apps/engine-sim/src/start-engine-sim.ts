import { createSeededRandom, hostInUrl, systemRandom } from "@espalier/core";
import { rankOf } from "./behaviours.ts";
import { createAdapterRegistry } from "./engine/adapters.ts";
import { createRequestLog } from "./engine/request-log.ts";
import {
  createSimulatedEngine,
  createTimeDriver,
  type SimulatedEngine,
  type TimeDriver,
} from "./engine/simulated-engine.ts";
import { createEventChannel, type EventChannel } from "./event-channel.ts";
import { createFaultTable, type FaultTable } from "./faults.ts";
import { createListener, type Listener } from "./http/listener.ts";
import {
  type EngineSimOptions,
  portsPerEngine,
  type ResolvedKvEvents,
  type ResolvedOptions,
  resolveOptions,
} from "./options.ts";
import { createRequestHandler } from "./request-handler.ts";
import type { EngineContext } from "./serving/engine-context.ts";
import { createStoredResponses } from "./serving/stored-responses.ts";
import { byteText } from "./text/byte-text.ts";
import type { ModelText } from "./text/model-text.ts";
import { createPeerTier, type PeerTier } from "./transfer/peer-tier.ts";
import { createTransfers, type Transfers } from "./transfer/transfers.ts";

/** Addresses of one simulated engine. */
export interface RunningEngine {
  readonly id: string;
  /** `http://host:port` */
  readonly url: string;
  /** Port of its side channel, of SGLang's and Mooncake's bootstrap server; only with `transfer`. */
  readonly transferPort?: number;
  /** Port at which other engines pull from its CPU memory; only with `p2p`. */
  readonly p2pPort?: number;
}

export interface RunningEngineSim {
  readonly engines: readonly RunningEngine[];
  /** Closes all sockets and drops all requests. */
  stop(): Promise<void>;
}

/** Requests kept in an engine's log. */
const logCapacity = 1_000;

/** Stored answers of the Responses API. */
const storedResponseCapacity = 1_000;

/** Distance between the hash seeds of two engines: each restart takes the next one. */
const seedStride = 1_000_003;

/**
 * Starts simulated engines, each behind its own HTTP server.
 *
 * @example
 * const sim = await startEngineSim({ engines: 2, speed: 50, models: ["tiny"] });
 * await fetch(`${sim.engines[0].url}/v1/models`);
 * await sim.stop();
 * @throws RangeError when an option is invalid; the error of the socket when an address cannot be listened on
 */
export async function startEngineSim(options: EngineSimOptions = {}): Promise<RunningEngineSim> {
  const resolved = resolveOptions(options);
  const text = await loadText(resolved);
  const driver = createTimeDriver(resolved);
  const shared = { driver, text, storageUrl: () => `http://${hostInUrl(resolved.host)}:${parts[0]?.transfers?.port}` };
  const parts: Part[] = Array.from({ length: resolved.engines }, (_, index) => createPart(resolved, shared, index));
  const stop = async (): Promise<void> => {
    driver.stop();
    await Promise.all(
      parts.flatMap(({ listener, kvEvents, transfers, peers }) => [
        listener.stop(),
        kvEvents?.stop(),
        transfers?.stop(),
        peers?.stop(),
      ]),
    );
  };
  try {
    for (const part of parts) await startPart(part);
  } catch (error) {
    await stop();
    throw error;
  }
  const engines = parts.map(({ id, listener, transfers, peers }) => {
    const url = `http://${hostInUrl(resolved.host)}:${listener.port}`;
    return { id, url, ...(transfers && { transferPort: transfers.port }), ...(peers && { p2pPort: peers.port }) };
  });
  return { engines, stop };
}

interface Part {
  readonly id: string;
  readonly engine: SimulatedEngine;
  readonly kvEvents: EventChannel | undefined;
  readonly transfers: Transfers | undefined;
  readonly peers: PeerTier | undefined;
  readonly listener: Listener;
}

/** Event sockets open before the first request is possible. */
async function startPart({ engine, kvEvents, transfers, peers, listener }: Part): Promise<void> {
  await kvEvents?.start();
  await transfers?.start();
  await peers?.start();
  engine.begin();
  await listener.listen();
}

/** Tokenizers are slow to load, so they are imported on demand. */
async function loadText(options: ResolvedOptions): Promise<ModelText> {
  if (options.tokenizer === undefined) return byteText;
  const [{ chatDialectOf }, { loadTokenizerText }] = await Promise.all([
    import("@espalier/tokenizer"),
    import("./text/tokenizer-text.ts"),
  ]);
  const dialect = chatDialectOf(options.parameters.flavour);
  return loadTokenizerText(options.tokenizer, { ...options, dialect });
}

/** Shared by the engines of one process. */
interface SharedParts {
  readonly driver: TimeDriver;
  readonly text: ModelText;
  /** Side channel of the first engine, once it listens. */
  readonly storageUrl: () => string;
}

function createPart(options: ResolvedOptions, shared: SharedParts, index: number): Part {
  const { driver, text } = shared;
  const { parameters, models, adapters, clock, scheduler, naturalLengthMean, host, port, apiKey } = options;
  const seed = options.seed + index * seedStride;
  const id = `engine-${index}`;
  const kvEvents = createChannel(options, options.kvEvents, index);
  const onEvents = kvEvents?.publish;
  const engine = createSimulatedEngine({
    ...{ parameters, seed, driver, clock, onEvents },
    describesCpuBlocks: options.selfDescribingKvEvents,
  });
  const faults = createFaultTable(createSeededRandom(seed));
  const transfers = createPartTransfers(options, shared, { engine, faults, index });
  const peers = createPeers(options, { driver, engine, faults, index });
  const context: EngineContext = {
    id,
    flavour: parameters.flavour,
    models,
    adapters: createAdapterRegistry(adapters),
    engine,
    behaviours: options.behaviours,
    text,
    kvEvents,
    transfers,
    peers,
    describesCpuBlocks: options.selfDescribingKvEvents,
    clock,
    scheduler,
    naturalLengthMean,
    faults,
    log: createRequestLog(logCapacity),
    live: new Set(),
    storedResponses: createStoredResponses(storedResponseCapacity),
    newId,
    refuseFor: (durationMs) => listener.refuseFor(durationMs),
  };
  const listener = createListener({
    host,
    port: portOf(port, index),
    scheduler,
    onRequest: createRequestHandler({ context, apiKey }),
  });
  return { id, engine, kvEvents, transfers, peers, listener };
}

interface PartTransfers {
  readonly engine: SimulatedEngine;
  readonly faults: FaultTable;
  readonly index: number;
}

function createPartTransfers(
  options: ResolvedOptions,
  { storageUrl }: SharedParts,
  { engine, faults, index }: PartTransfers,
): Transfers | undefined {
  const { transfer, clock, scheduler, host } = options;
  if (!transfer) return undefined;
  const port = portOf(transfer.port, index);
  // The first engine owns the store of the process.
  const poolEvents = index === 0 ? createChannel(options, transfer.poolEvents, index) : undefined;
  return createTransfers({ transfer, engine, faults, clock, scheduler, host, port, storageUrl, newId, poolEvents });
}

function createPeers(
  { p2p, scheduler, host }: ResolvedOptions,
  { index, ...parts }: PartTransfers & Pick<SharedParts, "driver">,
): PeerTier | undefined {
  if (!p2p) return undefined;
  return createPeerTier({ ...parts, p2p, scheduler, host, port: portOf(p2p.port, index), newId });
}

function createChannel(
  { clock, scheduler, logger, behaviours }: ResolvedOptions,
  kvEvents: ResolvedKvEvents | undefined,
  index: number,
): EventChannel | undefined {
  if (!kvEvents) return undefined;
  const port = portOf(kvEvents.port, portsPerEngine * index);
  const name = `engine-sim-${hexadecimal(systemRandom.integer(2 ** 32))}-${index}`;
  const rank = rankOf(behaviours);
  return createEventChannel({ ...kvEvents, port, replayPort: portOf(port, 1), name, clock, scheduler, rank, logger });
}

/** 0 stays 0: any free port. */
const portOf = (first: number, at: number): number => (first === 0 ? 0 : first + at);

const newId = (): string => hexadecimal(systemRandom.integer(2 ** 32)) + hexadecimal(systemRandom.integer(2 ** 32));

const hexadecimal = (value: number): string => value.toString(16).padStart(8, "0");
