import { editBody, endpoints, readRequestView } from "@espalier/api";
import {
  createSeededRandom,
  type EngineRole,
  EspalierError,
  type KvTransferProtocol,
  type Meter,
  silentLogger,
  silentMeter,
} from "@espalier/core";
import type { SideOutcome, SideRequest, Target } from "@espalier/engines";
import { createPolicy, defaultObjectives } from "@espalier/policies";
import {
  createRetryBudget,
  createRetryMeters,
  createTargetSelector,
  type FailureKind,
  PairRun,
  type PrefixKnowledge,
  type PromptBlocks,
  Retries,
  type Selection,
  type TriedTargets,
} from "@espalier/routing";
import { createSeriesMeter, type SeriesMeter } from "@espalier/testing";
import type { CompiledConfig } from "../../src/config/index.ts";
import { type PlannedRequest, SplitSource } from "../../src/request/planned-request.ts";
import type { RouterContext } from "../../src/router-context.ts";
import { HttpPair } from "../../src/serving/http-pair.ts";
import { createSplitParts } from "../../src/serving/split-parts.ts";
import { type ScriptedFleet, specOf, startScriptedFleet } from "../prefix/scripted-fleet.ts";

/** A prefill leg that a test settles. */
export interface SeenLeg {
  readonly engine: string;
  readonly request: SideRequest;
  isCancelled: boolean;
  settle(outcome: SideOutcome): void;
}

export interface SplitRig {
  readonly context: RouterContext;
  readonly fleet: ScriptedFleet;
  readonly meter: SeriesMeter;
  /** Tokens that an engine is thought to hold of any prompt. */
  readonly matched: Record<string, number>;
  readonly legs: SeenLeg[];
  /** What became of placements: `place e`, `computed e`, `withdraw e`, `answered e`. */
  readonly placements: string[];
  plan(changes?: Partial<PlannedRequest> & { readonly body?: never }, body?: object): PlannedRequest;
  /** Requests in flight by engine; those with none are left out. */
  inFlight(): Readonly<Record<string, number>>;
}

export interface SplitRigOptions {
  /** Engines by name: role and protocol. */
  readonly engines: Readonly<Record<string, readonly [EngineRole, KvTransferProtocol?]>>;
  readonly options?: Partial<CompiledConfig["disaggregation"]>;
}

export const answered = (body: object | undefined, status = 200): SideOutcome => ({
  ...{ kind: "answered", status, body: body && Buffer.from(JSON.stringify(body)) },
});

export const failed: SideOutcome = { kind: "failed", failure: "reset", error: new EspalierError("upstream_reset") };

export const chatBody = { model: "m", messages: [{ role: "user", content: "x" }], max_tokens: 50 };

export async function splitRig({ engines, options = {} }: SplitRigOptions): Promise<SplitRig> {
  const fleet = await startScriptedFleet();
  const specs = Object.entries(engines).map(([id, [role, protocol]]) =>
    specOf(id, {
      role,
      ...(protocol ? { kvTransfer: { protocol, host: undefined, port: undefined } } : {}),
    }),
  );
  await fleet.apply(...specs);
  const meter = createSeriesMeter();
  const matched: Record<string, number> = {};
  const placements: string[] = [];
  const legs: SeenLeg[] = [];
  const { clock } = fleet.time;
  const random = createSeededRandom(4);
  const knowledge = stubKnowledge(matched, placements);
  const selector = createTargetSelector({ random, knowledge });
  const usual = { thresholdTokens: undefined, minTokens: 2_048, maxTokens: 16_384, applyRoleBalance: false };
  const limits = { ...usual, ...options };
  const context = {
    ...{ clock, random, logger: silentLogger, prefix: { knowledge }, selector, dryRunSelector: selector },
    split: createSplitParts({
      ...{ config: { disaggregation: limits }, clock, http: fleet.http, fleet: fleet.fleet, meter: meter as Meter },
      ...{ selector, dryRunSelector: selector },
    }),
    proxy: { sendSide: (request: SideRequest) => sendSide(legs, request) },
  } as unknown as RouterContext;
  return {
    ...{ context, fleet, meter, matched, legs, placements },
    plan: (changes = {}, body = chatBody) => ({ ...planOf(fleet, body), ...changes }),
    inFlight: () =>
      Object.fromEntries(
        fleet.fleet.engines.flatMap(({ id, targets }) => {
          const count = targets[0]?.load.inFlight ?? 0;
          return count > 0 ? [[id, count]] : [];
        }),
      ),
  };
}

function sendSide(legs: SeenLeg[], request: SideRequest) {
  let settle: (outcome: SideOutcome) => void = () => {};
  const outcome = new Promise<SideOutcome>((resolve) => {
    settle = resolve;
  });
  const leg: SeenLeg = { engine: new URL(request.upstream.url).hostname, request, isCancelled: false, settle };
  legs.push(leg);
  return {
    outcome,
    cancel() {
      leg.isCancelled = true;
      settle({ kind: "cancelled" });
    },
  };
}

function planOf(fleet: ScriptedFleet, body: object): PlannedRequest {
  const endpoint = endpoints.find(({ path }) => path === "/v1/chat/completions")!;
  const bytes = Buffer.from(JSON.stringify(body));
  const view = readRequestView(endpoint, bytes, { maxDepth: 64 });
  const pool = {
    ...{ model: "m", policy: createPolicy("least_work"), upstreamHeaders: ["authorization", "Bearer engines"] },
    forwardAuthorization: false,
    holdMs: 0,
    objectivesOf: () => defaultObjectives,
    defaultClass: "default",
  };
  return {
    ...{
      family: "openai",
      method: "POST",
      path: endpoint.path,
      headers: ["x-request-id", "r-1"],
      ownTraceparent: undefined,
      body: [bytes],
    },
    ...{ release: () => {}, requestId: "r-1", endpointId: "chat", pool: pool as unknown as PlannedRequest["pool"] },
    ...{ targets: fleet.fleet.pool("m"), onlyEngine: undefined },
    features: { promptTokens: 8_000, expectedOutputTokens: 50, sessionKey: undefined, prefixKey: undefined },
    ...{ prompt, stripUsage: false, storesResponse: false, acceptedMs: 0 },
    split: new SplitSource(view, (set) => editBody(bytes, view, { set })),
  };
}

/** Of no content: the rig's knowledge does not look. */
const chain = Uint32Array.of(1, 2);
const prompt: PromptBlocks = { chain, contents: chain, tokens: 8_000, blockCount: 1, blockSize: 16, from: "tokens" };

function stubKnowledge(matched: Readonly<Record<string, number>>, placements: string[]): PrefixKnowledge {
  return {
    match() {},
    describe({ key }, _, candidates, index) {
      candidates.matchedTokens[index] = matched[key] ?? 0;
    },
    evidence: () => undefined,
    place({ key }) {
      const note = (what: string) => () => void placements.push(`${what} ${key}`);
      note("place")();
      return { computed: note("computed"), withdraw: note("withdraw"), answered: note("answered") };
    },
    reported() {},
    renew() {},
    forget() {},
    forgetPlacements() {},
  };
}

export const choosePair = ({ split }: RouterContext, plan: PlannedRequest, tried: TriedTargets) =>
  split.planner.choose(plan, tried);

/** The next attempt, with what its engine is told; `leg` is undefined for the client's own request. */
export interface SplitStep {
  readonly selection: Selection<Target>;
  readonly leg: ReturnType<HttpPair["of"]> | undefined;
}

/** A request that two engines may serve, over the rig's engines; `next` is a promise where it has to wait. */
export class SplitRun {
  readonly #run: PairRun<Target>;
  readonly #pair: HttpPair;
  #withdraw: () => void = () => {};
  #resumed: (isOver: boolean) => void = () => {};
  #status = 0;

  constructor(context: RouterContext, plan: PlannedRequest) {
    const { clock, split, prefix } = context;
    const retries = new Retries(createRetryBudget(clock), createRetryMeters(silentMeter));
    const pair = new HttpPair(context, plan, retries, (thrown) => {
      throw thrown;
    });
    this.#pair = pair;
    this.#run = new PairRun({
      ...{ clock, knowledge: prefix.knowledge, planner: split.planner, request: plan, retries, yields: () => false },
      carrier: {
        isStream: plan.split?.view.stream ?? false,
        prepare: (chosen, ready) => pair.prepare(chosen, ready),
        prefill: (dispatch, keeps, settled) => pair.prefill(dispatch, keeps, settled),
        handOver: (answer) => pair.handOver(answer),
        withdraw: () => this.#withdraw(),
        resume: () => this.#resumed(false),
      },
    });
  }

  get prefillEngine(): string | undefined {
    return this.#run.prefill?.target.engine.id;
  }

  next(tried: ReadonlySet<string>): SplitStep | undefined | Promise<SplitStep | undefined> {
    const next = this.#run.next(tried);
    if (next !== "later") {
      return (
        next && { ...next, leg: next.leg === "whole" ? undefined : this.#pair.of(next.leg, next.selection.target) }
      );
    }
    return new Promise<boolean>((resolve) => {
      this.#resumed = resolve;
    }).then((isOver) => (isOver ? undefined : this.next(tried)));
  }

  started(withdraw: () => void): void {
    this.#withdraw = withdraw;
    this.#run.started();
  }

  failed(kind: FailureKind): void {
    this.#run.failed(kind);
  }

  judge(status: number, head: Buffer, ended: boolean): "pass" | "decline" | "more" {
    this.#status = status;
    return this.#run.judge(status, head, ended);
  }

  firstByte(): void {
    this.#run.answering(this.#status);
    this.#run.firstByte();
  }

  finish(end: Parameters<PairRun<Target>["finish"]>[0]): void {
    this.#run.finish(end);
    this.#resumed(true);
  }
}

/** What the decode engine, or the one that answers alone, is sent. */
export function bodyOf(step: SplitStep | undefined): Record<string, unknown> {
  return JSON.parse(Buffer.concat([...(step?.leg?.body ?? [])]).toString());
}

export const bodyOfLeg = ({ request }: SeenLeg): Record<string, unknown> =>
  JSON.parse(Buffer.concat([...request.body]).toString());
