import type { IncomingHttpHeaders } from "node:http";
import type { ApiFamily, Endpoint, FoundConversation, RealtimeFrames, RequestView } from "@espalier/api";
import type { EngineRecord, Target } from "@espalier/engines";
import type { Objectives, Policy } from "@espalier/policies";
import type { PairedRequest, PoolWork, PromptBlocks } from "@espalier/routing";
import { isSplittable, type TransferProtocol } from "@espalier/routing";
import type { ProgramStep } from "../programs/program-table.ts";
import type { ExchangedRequest } from "./exchange.ts";
import type { RequestTrace } from "./request-trace.ts";

/** Paths at which clients send files, in forms. */
export type UploadEndpoint = "transcriptions" | "translations" | "image_edits";

/** A client's request as it arrives. Fastify's requests have this shape. */
export interface ClientRequest {
  readonly method: string;
  /** The path with the query. */
  readonly url: string;
  readonly id: string;
  readonly headers: IncomingHttpHeaders;
  /** A Buffer, unless there is none. */
  body: unknown;
  /** Name of the request's API key; undefined when none is required. */
  readonly apiKeyName: string | undefined;
  /** Whether it came by the listener for RL frameworks. */
  readonly isRollout?: boolean;
  /** Undefined for a request that is not recorded. */
  readonly trace: RequestTrace | undefined;
  /** Bytes reserved for its body in the body memory budget; negative once its answer has begun or ended. */
  reservedBytes: number;
  readonly protocol: string;
  readonly routeOptions: {
    readonly url?: string | undefined;
    readonly config?: { readonly endpointId?: PlannedRequest["endpointId"] };
  };
  readonly raw: {
    /** Flat names and values, as they came. */
    readonly rawHeaders: readonly string[];
    readonly socket: {
      readonly remoteAddress?: string | undefined;
      readonly localAddress?: string | undefined;
      readonly localPort?: number | undefined;
    };
  };
  /** The model to serve it, where a trusted header names another one than the body. */
  readonly modelName?: string | undefined;
  /** False where the answer does not pass through the router, so that nothing in it can be read or removed. */
  readonly isAnswerSeen?: boolean;
}

/** Settings shared by the engines of one model: its policy and credentials. */
export interface PoolSettings {
  /** The served model's name, or `*` for requests that name none. */
  readonly model: string;
  readonly policy: Policy;
  /** Learned service times of its engines: of the base model's while they serve this one as an adapter. */
  readonly work: PoolWork;
  /** Flat name and value pairs added to every request to the pool's engines: its credentials. */
  readonly upstreamHeaders: readonly string[];
  /** Whether the client's `authorization` header is passed on. */
  readonly forwardAuthorization: boolean;
  /** How long requests wait for an engine while none is up; 0 for not at all. */
  readonly holdMs: number;
  /** What the answers to a class's requests have to keep; undefined for the default class. */
  readonly objectivesOf: (className: string | undefined) => Objectives;
  /** Class of requests that name none; empty without admission. */
  readonly defaultClass: string;
}

/** Class, tenant and deadline of a request. */
export interface ServiceClass {
  /** Undefined for the default class. */
  readonly className: string | undefined;
  readonly tenant: string;
  /** Milliseconds from arrival until the first token is due; undefined for the class's default. */
  readonly deadlineMs: number | undefined;
}

/** What a request needs to be answered by an overflow backend; requests that may not be have none. */
export interface OverflowPlan {
  readonly tenant: string;
  /** Whether the router asks for usage that the client did not ask for. */
  readonly stripUsage: boolean;
  /** The client's body with another model. */
  bodyFor(model: string): readonly Buffer[];
}

/** A request as planned, before an engine is chosen. */
export interface PlannedRequest extends ExchangedRequest, PairedRequest<Target> {
  readonly family: ApiFamily;
  /** Empty once the answer has begun; `bodyWith` and `split` are undefined then. */
  body: readonly Buffer[];
  /** Releases the client's body and its reserved memory. */
  readonly release: () => void;
  /** Undefined for a request that is not recorded. */
  readonly trace?: RequestTrace | undefined;
  /** The `traceparent` for engines where the client sent none that is valid; undefined where the client's goes on. */
  readonly ownTraceparent: string | undefined;
  /** Names the route in metrics. */
  readonly endpointId: Endpoint["id"] | "stored_response" | "forwarded" | "realtime" | UploadEndpoint;
  readonly pool: PoolSettings;
  readonly targets: readonly Target[];
  /** Whether an engine applies the adapter that is asked for; absent for a base model. */
  readonly serves?: ((engine: EngineRecord) => boolean) | undefined;
  readonly onlyEngine: string | undefined;
  /**
   * Of a request by the listener for RL frameworks, which may abort it: the id in its body, if it has one, and whether it
   * names `onlyEngine`.
   */
  readonly rollout?: { readonly rid: string | undefined; readonly namesEngine: boolean } | undefined;
  /** The prompt field of the body that has an unknown layout. */
  readonly unreadPrompt?: string | undefined;
  /** Of the program that it is part of; undefined for none. Set once it is planned. */
  step?: ProgramStep | undefined;
  /** The item of `session-key` that its program is known by; absent without one. */
  readonly sessionSource?: string | undefined;
  /** Session key of the agent that started its agent; absent for none that is known. */
  readonly parentKey?: string | undefined;
  /** Of a request without a session key. */
  readonly conversation?: FoundConversation | undefined;
  /** The prompt for recordings, in a pool whose policy does not look at prompts too; undefined while nobody records. */
  readonly recordedPrompt?: PromptBlocks | undefined;
  /** The agent of its session, for recordings; undefined while nobody records, and for a session's own requests. */
  readonly recordedAgent?:
    | { readonly session: string; readonly agent: string; readonly parent: string | undefined }
    | undefined;
  /** Whether the router asked for a stream's usage event and must remove it again. */
  readonly stripUsage: boolean;
  /** Follows an engine's frames; absent for a request over HTTP. */
  readonly frames?: RealtimeFrames | undefined;
  /** Where the request is one whose stream another engine can go on with; undefined otherwise. */
  readonly resumableAt?: Endpoint | undefined;
  /** Whether the answer's id names a response that the engine stores. */
  readonly storesResponse: boolean;
  /**
   * The body with further keys set, as JSON text, for an engine with `workMs` of expected work on the prompt. Defined
   * for requests for a LoRA adapter, and where engines order requests by work or pull KV blocks.
   */
  bodyWith?: ((set: BodyFields, workMs: number) => readonly Buffer[]) | undefined;
  /** Source of both legs' bodies; absent for a request that is never disaggregated. */
  split?: SplitSource | undefined;
  /** Absent for a request that never goes to an overflow backend, and once the answer has begun. */
  overflow?: OverflowPlan | undefined;
  /** Undefined for requests that are never queued, since they cost engines next to nothing. */
  readonly service?: ServiceClass | undefined;
  /** When the request was complete, on the clock's monotonic axis. */
  readonly acceptedMs: number;
}

/** Top-level keys of a body and their values as JSON text. */
export type BodyFields = Readonly<Record<string, string>>;

export interface LegBody {
  /** Whether the client gets the answer of this leg. */
  readonly isAnswer: boolean;
  /** Expected milliseconds of work on the prompt; 0 when unknown. */
  readonly workMs: number;
}

/** The part of a request from which its legs' bodies are made. */
export class SplitSource {
  readonly view: Pick<RequestView, "endpoint" | "body" | "choices" | "maxOutputTokens" | "stream">;
  /** The client's body with some keys set. */
  readonly edit: (set: BodyFields | undefined, leg: LegBody) => readonly Buffer[];
  readonly #carries: (protocol: TransferProtocol) => boolean;

  /** @param carries whether a protocol is possible on the request's way to engines */
  constructor(
    view: SplitSource["view"],
    edit: SplitSource["edit"],
    carries: (protocol: TransferProtocol) => boolean = () => true,
  ) {
    this.view = view;
    this.edit = edit;
    this.#carries = carries;
  }

  allows(protocol: TransferProtocol): boolean {
    return this.#carries(protocol) && isSplittable(this.view, protocol);
  }
}

/** Releases the body when it will not be resent: the answer may be a long stream. */
export function dropBody(plan: PlannedRequest): void {
  plan.body = [];
  plan.bodyWith = undefined;
  plan.split = undefined;
  plan.overflow = undefined;
  plan.release();
}
