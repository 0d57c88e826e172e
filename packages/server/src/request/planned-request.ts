import { isSplittable, type TransferProtocol } from "@espalier/disaggregation";
import type { ApiFamily, Endpoint, RequestView } from "@espalier/openai";
import type { PairedRequest } from "@espalier/routing";
import type { Target } from "@espalier/workers";
import type { PoolSettings } from "../routing/pools.ts";
import type { ServiceClass } from "../routing/service-class.ts";
import type { RelayedRequest } from "./relay.ts";
import type { RequestTrace } from "./request-trace.ts";

/** Everything that is known of one request before an engine is chosen. */
export interface PlannedRequest extends RelayedRequest, PairedRequest<Target> {
  readonly family: ApiFamily;
  /** Empty once the answer has begun, as what is made of it is gone then: `bodyWith` and `split`. */
  body: readonly Buffer[];
  /** Gives back the client's body and the room that it takes. */
  readonly letGo: () => void;
  /** Undefined for a request that is not recorded. */
  readonly trace?: RequestTrace | undefined;
  /** Names the route in metrics. */
  readonly endpointId: Endpoint["id"] | "stored_response" | "forwarded";
  readonly pool: PoolSettings;
  readonly targets: readonly Target[];
  readonly onlyEngine: string | undefined;
  /** Whether the router asked for the usage event of a stream and must take it out again. */
  readonly stripUsage: boolean;
  /** Whether the answer's id names a response that the engine keeps. */
  readonly storesResponse: boolean;
  /**
   * The body with further keys set, as JSON text, for an engine that is expected to compute so many milliseconds on the
   * prompt; for requests for a LoRA adapter, and where engines are told what they compute.
   */
  bodyWith?: ((set: BodyFields, workMs: number) => readonly Buffer[]) | undefined;
  /** What the legs of two engines are made of; absent for what one engine serves in any case. */
  split?: SplitSource | undefined;
  /** Undefined for what never waits: it costs engines next to nothing. */
  readonly service?: ServiceClass | undefined;
  /** When the request was complete, on the clock's monotonic axis. */
  readonly acceptedMs: number;
}

/** Top-level keys of a body and their values as JSON text. */
export type BodyFields = Readonly<Record<string, string>>;

export interface LegBody {
  /** Whether the client gets the answer to it, so that it has to report what the router reads of answers. */
  readonly isAnswer: boolean;
  /** What the engine is expected to compute on the prompt, in milliseconds; 0 when nothing is known. */
  readonly workMs: number;
}

/** A request as far as its legs are made of it. */
export class SplitSource {
  readonly view: Pick<RequestView, "endpoint" | "body" | "choices" | "maxOutputTokens" | "stream">;
  /** The client's body with some keys set, besides what every engine gets. */
  readonly edit: (set: BodyFields | undefined, leg: LegBody) => readonly Buffer[];

  constructor(view: SplitSource["view"], edit: SplitSource["edit"]) {
    this.view = view;
    this.edit = edit;
  }

  allows(protocol: TransferProtocol): boolean {
    return isSplittable(this.view, protocol);
  }
}

/** Lets the body go once it is sent no more: the answer that has begun may be a long stream. */
export function dropBody(plan: PlannedRequest): void {
  plan.body = [];
  plan.bodyWith = undefined;
  plan.split = undefined;
  plan.letGo();
}
