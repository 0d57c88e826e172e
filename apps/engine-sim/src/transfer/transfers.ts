import type { Clock, JsonObject, Scheduler } from "@espalier/core";
import type { SequenceRequest, SimulatedEngine } from "../engine/simulated-engine.ts";
import type { EventChannel } from "../event-channel.ts";
import type { FaultTable } from "../faults.ts";
import { ApiError, type Exchange } from "../http/exchange.ts";
import { createListener } from "../http/listener.ts";
import type { ResolvedTransfer, TransferProtocol } from "../options.ts";
import { createBlockStore, maxStoredBlocks, poolEventsOf } from "./block-store.ts";
import type { Leg, LegInput, LegParts } from "./leg.ts";
import { createKvLinks } from "./peer-client.ts";
import { sglangLeg } from "./protocols/sglang-bootstrap.ts";
import { trtllmLeg } from "./protocols/trtllm.ts";
import { mooncakeLeg, nixlLeg, p2pNcclLeg, sharedStorageLeg } from "./protocols/vllm-connectors.ts";
import { createSideChannel, type SideChannelParts } from "./side-channel.ts";
import { createInbox, ExportTable } from "./ticket-tables.ts";

/** The exchange of KV blocks between this engine and others. */
export type Transfers = ReturnType<typeof createTransfers>;

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
  readonly faults: FaultTable;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  /** Default location of shared blocks. */
  readonly storageUrl: () => string;
  readonly newId: () => string;
  readonly poolEvents: EventChannel | undefined;
}

export function createTransfers(options: TransfersOptions) {
  const { transfer, engine, faults, clock, scheduler, host, newId } = options;
  const { timeoutMs, protocol, role } = transfer;
  const exports = new ExportTable({ clock, scheduler, timeoutMs });
  const inbox = createInbox({ clock, scheduler, timeoutMs });
  const links = createKvLinks();
  const store = createBlockStore(maxStoredBlocks);
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
  /** Counts of imported prompts. */
  const tallies = {
    /** Requests that fetch, or wait for, blocks now. */
    fetching: 0,
    /** Requests that got blocks, and their tokens. */
    imported: 0,
    importedTokens: 0,
    /** Requests whose blocks matched only a part of the prompt. */
    mismatched: 0,
    /** Requests whose blocks did not arrive: computed here instead, and failed. */
    recomputed: 0,
    failed: 0,
    /** Requests that ended with `cache_threshold`. */
    belowThreshold: 0,
  };
  const drop = (): void => {
    links.cut();
    exports.clear();
    inbox.clear();
  };
  return {
    transfer,
    /** Of the side channel, once `start` has resolved. */
    get port() {
      return listener.port;
    },
    /** Rejects when the address cannot be listened on. */
    async start(): Promise<void> {
      await poolEvents?.start();
      await listener.listen();
    },
    async stop(): Promise<void> {
      drop();
      await Promise.all([listener.stop(), poolEvents?.stop()]);
    },
    /** The engine restarts: its exports and imports are gone, and its name changes. */
    restart(): void {
      drop();
      processId = newId();
    },
    /**
     * The leg of this engine in a request; none when it has several prompts or answers.
     *
     * @throws ApiError 400 when its fields are invalid
     */
    legOf(exchange: Exchange, body: JsonObject, sequences: readonly SequenceRequest[]): Leg | undefined {
      const [sequence] = sequences;
      if (!sequence || sequences.length > 1) {
        if (protocol !== "sglang-bootstrap" || role === "both") return undefined;
        throw new ApiError(400, "engines with a role compute one answer to one prompt at a time");
      }
      return legs[protocol]({ parts, exchange, body, sequence });
    },
    tallies,
    /** Publishes the store's changes; undefined when they are not published. */
    poolEvents,
    /** The answer of `/sim/transfers`. */
    describe(): JsonObject {
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

/** Publishes the events of a put, if there are any. */
function publishPuts(channel: EventChannel | undefined): SideChannelParts["onPut"] {
  return (change, prompt) => {
    const events = channel ? poolEventsOf(change, prompt) : [];
    if (events.length > 0) channel?.publish(events);
  };
}
