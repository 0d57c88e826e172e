import type { JsonObject } from "../api/body-fields.ts";
import type { SequenceRequest, SimulatedEngine } from "../engine/simulated-engine.ts";
import type { Exchange } from "../http/exchange.ts";
import type { ExportBoard } from "./export-board.ts";
import type { Inbox } from "./inbox.ts";
import type { KvLinks } from "./kv-link.ts";
import type { ResolvedTransfer } from "./transfer-options.ts";

/** What the protocols of one engine share. */
export interface LegParts {
  readonly transfer: ResolvedTransfer;
  readonly engine: SimulatedEngine;
  readonly exports: ExportBoard;
  readonly inbox: Inbox;
  readonly links: KvLinks;
  /** Name of the engine's process, another one in each life. */
  readonly engineId: () => string;
  /** Port of its side channel. */
  readonly port: () => number;
  /** Side channel of the engine that keeps shared blocks. */
  readonly storageUrl: () => string;
  /** 16 random hexadecimal digits. */
  readonly newId: () => string;
}

/** A request with one prompt and one answer that may be a part of another one. */
export interface LegInput {
  readonly parts: LegParts;
  readonly exchange: Exchange;
  readonly body: JsonObject;
  readonly sequence: SequenceRequest;
}
