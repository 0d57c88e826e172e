import type { Clock, HttpClient, Logger, Random, Scheduler, Tracer } from "@espalier/core";
import type { Proxy as EngineProxy, Fleet, InferenceTables } from "@espalier/engines";
import type { PrefixIndex } from "@espalier/prefix-index";
import type {
  DecisionLog,
  FleetLearning,
  MemoryWatch,
  RetryBudget,
  RetryMeters,
  SessionBindings,
  SharedCredits,
  TargetSelector,
} from "@espalier/routing";
import type { AdapterLoader } from "./adapters/adapter-loader.ts";
import type { AdapterUse } from "./adapters/adapter-use.ts";
import type { PrefixUse } from "./admin/prefix-use.ts";
import type { Recorder } from "./admin/recorder.ts";
import type { ResponseFinder, StoredResponses } from "./data-plane/stored-responses.ts";
import type { DecisionFeed, DescribedDecision } from "./decisions/decision-feed.ts";
import type { CheckIdentity } from "./extensions/auth.ts";
import type { HookCalls } from "./extensions/hooks.ts";
import type { LargeBodies } from "./large-bodies/large-bodies.ts";
import type { DescriptorShares } from "./lifecycle/descriptors.ts";
import type { Drain } from "./lifecycle/drain.ts";
import type { EngineSources } from "./lifecycle/engine-sources.ts";
import type { ConnectionLimit } from "./lifecycle/listener.ts";
import type { LiveConfig } from "./lifecycle/live-config.ts";
import type { Overload } from "./lifecycle/overload.ts";
import type { OwnRelease } from "./mesh/fleet-watch.ts";
import type { MeshParts } from "./mesh/mesh-parts.ts";
import type { AbortRequests } from "./orders/shared-aborts.ts";
import type { Overflow } from "./overflow/overflow.ts";
import type { PrefixParts } from "./prefix/prefix-parts.ts";
import type { Programs } from "./programs/programs.ts";
import type { RealtimeConnections } from "./realtime/realtime-connections.ts";
import type { ExchangeParts } from "./request/exchange.ts";
import type { HeldRequests } from "./request/held-requests.ts";
import type { MovableStreams } from "./request/movable-streams.ts";
import type { RequestMetrics } from "./request/request-metrics.ts";
import type { EngineControl } from "./rollouts/engine-control.ts";
import type { AdmissionParts } from "./routing/admission-parts.ts";
import type { Pools } from "./routing/pools.ts";
import type { SplitParts } from "./serving/split-parts.ts";
import type { ResumeLedger } from "./serving/stream-resumption.ts";

/** What the routes of the data plane work with. */
export interface RouterContext {
  readonly clock: Clock;
  readonly random: Random;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly tracer: Tracer;
  /** The configuration in force; read anew for each request. */
  readonly live: LiveConfig;
  /** Priorities of the InferenceObjectives that are followed; they change by themselves. */
  readonly objectives: Pick<InferenceTables, "priorityOf" | "priorities">;
  readonly fleet: Fleet;
  readonly proxy: EngineProxy;
  /** For control traffic to engines, with their key. */
  readonly controlHttp: HttpClient;
  /** For operators, and RL frameworks, who add and remove engines. */
  readonly operators: EngineSources["operators"];
  /** What RL frameworks did to engines. */
  readonly engineControl: EngineControl;
  readonly heldRequests: HeldRequests;
  /** Those of all routers. */
  readonly abortRequests: AbortRequests;
  /** Which session goes where. */
  readonly sessions: SessionBindings;
  /** Shared by all attempts at engines. */
  readonly exchange: ExchangeParts & {
    /** Statuses after which another engine is tried; 429 is one. */
    readonly retryStatuses: ReadonlySet<number>;
    readonly retryBudget: RetryBudget;
    readonly retryMeters: RetryMeters;
  };
  readonly resumeLedger: ResumeLedger;
  readonly movableStreams: MovableStreams;
  /** Drains an engine at all routers, and moves its streams to others. */
  readonly moveStreams: (engineId: string) => void;
  readonly pools: Pools;
  /** Undefined without hooks. */
  readonly hooks?: HookCalls | undefined;
  /** Takes the place of API keys; undefined when those decide. */
  readonly checkIdentity?: CheckIdentity | undefined;
  /** Learned service times of engines. */
  readonly learning: FleetLearning;
  readonly credits: SharedCredits;
  readonly adapterLoader: AdapterLoader;
  readonly adapterUse: AdapterUse;
  readonly selector: TargetSelector;
  readonly admission: AdmissionParts;
  /** Without backends it has nothing to do. */
  readonly overflow: Overflow;
  /** Sheds new requests while the router itself lacks time or memory. */
  readonly overload: Overload;
  /** Watches engines' cache memory; undefined where no class has a max cold wait. */
  readonly memory: MemoryWatch | undefined;
  /** Decides like `selector` but does not change its state; for requests that are not sent. */
  readonly dryRunSelector: TargetSelector;
  readonly prefix: PrefixParts;
  readonly largeBodies: LargeBodies;
  /** The blocks that engines have; created for `maxKnownTargets`. */
  readonly index: PrefixIndex;
  /** The live feed of decisions for the dashboard. */
  readonly decisions: DecisionFeed;
  /** What routers know of sessions and agents. */
  readonly programs: Programs;
  /** The latest decisions, found by request id. */
  readonly decisionLog: DecisionLog<DescribedDecision>;
  /** Who asks for the prefixes that operators look at. */
  readonly prefixUse: PrefixUse;
  /** Passes requests on to those who record them. */
  readonly recorder: Recorder;
  /** Disaggregated prefill and decode. */
  readonly split: SplitParts;
  /** This router's version, and a digest of the settings that all routers should have alike. */
  readonly release: () => OwnRelease;
  /** Undefined when nothing is shared with other routers. */
  readonly mesh: MeshParts | undefined;
  readonly metrics: RequestMetrics;
  readonly storedResponses: StoredResponses;
  readonly responseFinder: ResponseFinder;
  readonly connections: ConnectionLimit;
  readonly realtime: RealtimeConnections;
  readonly drain: Drain;
  readonly inFlight: InFlightCount;
  readonly descriptors: DescriptorShares;
}

/** Requests whose answers have not ended, over all routes of the data plane. */
interface InFlightCount {
  count: number;
  /** Bytes of their bodies, including those still being read. */
  bodyBytes: number;
}
