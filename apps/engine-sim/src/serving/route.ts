import type { JsonObject } from "@espalier/core";
import type { CacheFlavour } from "@espalier/engine-model";
import type { Exchange } from "../http/exchange.ts";
import type { EngineContext } from "./engine-context.ts";

export type Method = "GET" | "POST" | "DELETE";

/** Answers a request. @throws ApiError before anything was sent */
export type Handler = (context: EngineContext, exchange: Exchange, body: JsonObject) => void | Promise<void>;

export interface Route {
  readonly methods: Readonly<Partial<Record<Method, Handler>>>;
  /** Whether it runs the model: faults without a path hit these, and the log keeps them. */
  readonly isModelRequest: boolean;
  /** Whether it needs the API key, if one is set. */
  readonly isGuarded: boolean;
  /** The only flavour that has it; both unless given. */
  readonly onlyFor?: CacheFlavour;
}
