import type { Target } from "@espalier/engines";
import type { Engine, Verdict } from "../request/answer-source.ts";
import type { BodyFields, PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { adapterCallsOf, adapterFields } from "./adapter-loader.ts";

/** Most reloads for one request after the engine unloaded its adapter. */
const maxReloads = 2;
/** How many bytes of an answer are inspected: errors are short. */
const maxReadBytes = 4_096;

/** What else changes in the body. */
interface AdapterEdits {
  readonly workMs: number;
  readonly set: BodyFields;
}

/** One request for a LoRA adapter. Loads the adapter, and loads it again when the engine has lost it. */
export class AdapterRun {
  /** Whether the adapter is configured, so that answers are checked. */
  readonly isManaged: boolean;
  readonly #context: Pick<RouterContext, "adapterLoader" | "adapterUse">;
  readonly #plan: PlannedRequest;
  readonly #adapter: string;
  #target: Target | undefined;
  #endUse: (() => void) | undefined;
  #reloads = 0;

  constructor(context: Pick<RouterContext, "adapterLoader" | "adapterUse">, plan: PlannedRequest, adapter: string) {
    this.isManaged = context.adapterLoader.isManaged(adapter);
    this.#context = context;
    this.#plan = plan;
    this.#adapter = adapter;
  }

  /**
   * Makes an engine ready for the request.
   *
   * @param edits expected milliseconds of work on the prompt, and further keys of the body
   * @returns the request to send, or undefined when the engine cannot serve it; no promise when the adapter is loaded
   */
  prepare(target: Target, engine: Engine, edits: AdapterEdits): Engine | Promise<Engine | undefined> {
    const { adapterLoader, adapterUse } = this.#context;
    this.ended();
    const fields = adapterFields(target.engine, this.#adapter, this.#plan.endpointId);
    if (!fields) return Promise.resolve(undefined);
    this.#target = target;
    this.#endUse = adapterUse.begin(target.engine, this.#adapter);
    const loading = adapterLoader.load(target.engine, this.#adapter, this.#plan.pool.upstreamHeaders);
    const { workMs, set } = edits;
    const send = (): Engine => this.#sent(target, engine, { workMs, set: { ...set, ...fields } });
    return loading ? loading.then((isLoaded) => (isLoaded ? send() : undefined)) : send();
  }

  /** Declines an answer that says that the adapter is not loaded. The engine is asked again after loading it. */
  judge(status: number, head: Buffer, ended: boolean): Verdict {
    if (!this.isManaged || !this.#target || this.#reloads >= maxReloads) return "pass";
    const body = head.toString("latin1", 0, maxReadBytes);
    if (!adapterCallsOf(this.#target.engine).isMissing({ status, body }))
      return status < 400 || ended || head.length >= maxReadBytes ? "pass" : "more";
    this.#reloads += 1;
    this.#context.adapterLoader.missing(this.#target.engine, this.#adapter);
    return "decline";
  }

  /** The request is no longer at the engine. */
  ended(): void {
    this.#endUse?.();
    this.#endUse = undefined;
  }

  #sent(target: Target, engine: Engine, { workMs, set }: AdapterEdits): Engine {
    target.adapters.sent(this.#adapter);
    // In disaggregated serving the body of the leg has them already.
    const isOther = workMs > 0 || Object.keys(set).length > 0;
    const body = engine.body ?? (isOther ? this.#plan.bodyWith?.(set, workMs) : undefined);
    return body ? { ...engine, body } : engine;
  }
}
