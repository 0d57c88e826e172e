import type { Clock, Scheduler } from "@espalier/common";
import type { FaultBoard } from "../admin/faults.ts";
import type { JsonObject } from "../api/body-fields.ts";
import type { SequenceRequest, SimulatedEngine } from "../engine/simulated-engine.ts";
import type { EventChannel } from "../events/event-channel.ts";
import { ApiError } from "../http/api-error.ts";
import type { Exchange } from "../http/exchange.ts";
import { createListener } from "../http/listener.ts";
import { type BlockStore, createBlockStore, maxStoredBlocks } from "./block-store.ts";
import { ExportBoard } from "./export-board.ts";
import { createImportTallies, type ImportTallies } from "./import-tallies.ts";
import { createInbox } from "./inbox.ts";
import { createKvLinks } from "./kv-link.ts";
import type { Leg } from "./leg.ts";
import type { LegInput, LegParts } from "./leg-input.ts";
import { poolEventsOf } from "./pool-events.ts";
import { mooncakeLeg } from "./protocols/mooncake.ts";
import { nixlLeg } from "./protocols/nixl.ts";
import { p2pNcclLeg } from "./protocols/p2p-nccl.ts";
import { sglangLeg } from "./protocols/sglang-bootstrap.ts";
import { sharedStorageLeg } from "./protocols/shared-storage.ts";
import { trtllmLeg } from "./protocols/trtllm.ts";
import { createSideChannel, type SideChannelParts } from "./side-channel.ts";
import type { ResolvedTransfer, TransferProtocol } from "./transfer-options.ts";

/** What an engine has to do with the requests of others. */
export interface Transfers {
  readonly transfer: ResolvedTransfer;
  /** Of the side channel, once `start` has resolved. */
  readonly port: number;
  /** Rejects when the address cannot be listened on. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** The engine's process is another one: what it held is gone, and so is its name. */
  restart(): void;
  /**
   * The part of this engine in a request. One that has several prompts or answers has none.
   *
   * @throws ApiError 400 when its fields make no sense
   */
  legOf(exchange: Exchange, body: JsonObject, sequences: readonly SequenceRequest[]): Leg | undefined;
  readonly tallies: ImportTallies;
  /** Tells what the store holds; undefined where it tells nobody. */
  readonly poolEvents: EventChannel | undefined;
  /** What `/sim/transfers` tells. */
  describe(): JsonObject;
}

const legs: Readonly<Record<TransferProtocol, (input: LegInput) => Leg>> = {
  nixl: nixlLeg,
  "sglang-bootstrap": sglangLeg,
  mooncake: mooncakeLeg,
  "shared-storage": sharedStorageLeg,
  trtllm: trtllmLeg,
  "p2p-nccl": p2pNcclLeg,
};

interface TransfersOptions {
  readonly transfer: ResolvedTransfer;
  readonly engine: SimulatedEngine;
  readonly faults: FaultBoard;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  /** Where shared blocks are when the options do not say. */
  readonly storageUrl: () => string;
  readonly newId: () => string;
  readonly poolEvents: EventChannel | undefined;
}

export function createTransfers(options: TransfersOptions): Transfers {
  const { transfer, engine, faults, clock, scheduler, host, newId } = options;
  const { timeoutMs, protocol, role } = transfer;
  const exports = new ExportBoard({ clock, scheduler, timeoutMs });
  const inbox = createInbox({ scheduler, timeoutMs });
  const links = createKvLinks();
  const store: BlockStore = createBlockStore(maxStoredBlocks);
  let processId = newId();
  const engineId = (): string => processId;
  const { poolEvents } = options;
  const onPut = publishPuts(poolEvents);
  const onRequest = createSideChannel({ engineId, exports, inbox, store, onPut, faults, scheduler });
  const listener = createListener({ host, port: options.port, scheduler, onRequest });
  const storageUrl = (): string => transfer.storageUrl ?? options.storageUrl();
  const parts: LegParts = {
    transfer,
    engine,
    exports,
    inbox,
    links,
    engineId,
    port: () => listener.port,
    storageUrl,
    newId,
  };
  const tallies = createImportTallies();
  return {
    transfer,
    get port() {
      return listener.port;
    },
    async start() {
      await poolEvents?.start();
      await listener.listen();
    },
    async stop() {
      links.cut();
      exports.clear();
      inbox.clear();
      await Promise.all([listener.stop(), poolEvents?.stop()]);
    },
    restart() {
      links.cut();
      exports.clear();
      inbox.clear();
      processId = newId();
    },
    legOf(exchange, body, sequences) {
      const [sequence] = sequences;
      if (!sequence || sequences.length > 1) {
        if (protocol !== "sglang-bootstrap" || role === "both") return undefined;
        throw new ApiError(400, "engines with a role compute one answer to one prompt at a time");
      }
      return legs[protocol]({ parts, exchange, body, sequence });
    },
    tallies,
    poolEvents,
    describe() {
      const { pinned, importing } = engine.stats();
      return {
        ...{ protocol, role, engineId: processId, port: listener.port, pinned, importing },
        exports: exports.describe(),
        inbox: { held: inbox.size(), waiting: inbox.waiting() },
        links: links.size(),
        storedBlocks: store.size(),
        totals: { ...exports.totals, ...tallies },
      };
    },
  };
}

/** Tells what comes of blocks that are put into a store, where there is anything to tell and somewhere to tell it. */
function publishPuts(channel: EventChannel | undefined): SideChannelParts["onPut"] {
  return (change, prompt) => {
    const events = channel ? poolEventsOf(change, prompt) : [];
    if (events.length > 0) channel?.publish(events);
  };
}
