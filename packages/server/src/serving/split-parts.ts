import { type Clock, type EngineId, type HttpClient, isJsonObject, type Meter, parseJson } from "@espalier/core";
import { type EngineRecord, type Fleet, rankNumber, type Target } from "@espalier/engines";
import { createFleetRoles, createSplitMetrics, PairPlanner, type TargetSelector } from "@espalier/routing";
import type { NoteChannel } from "@espalier/shared-tree";
import type { CompiledConfig } from "../config/index.ts";

/** Shared parts of disaggregated serving. */
export interface SplitParts {
  readonly planner: PairPlanner<Target>;
  readonly peers: PeerIds;
  /** The assigned role of an engine of role `both`; undefined while it has none. */
  assignedRoleOf(engine: EngineRecord): "prefill" | "decode" | undefined;
}

interface SplitPartsOptions {
  readonly config: Pick<CompiledConfig, "disaggregation">;
  readonly clock: Clock;
  readonly http: HttpClient;
  readonly fleet: Fleet;
  readonly meter: Meter;
  readonly selector: TargetSelector;
  /** Like `selector`, for requests that are not sent. */
  readonly dryRunSelector: TargetSelector;
  /** Shared estimates of the work of each role; undefined when nothing is shared. */
  readonly notes?: NoteChannel | undefined;
}

export function createSplitParts(options: SplitPartsOptions): SplitParts {
  const { config, clock, http, fleet, meter, selector, dryRunSelector, notes } = options;
  const planner = new PairPlanner<Target>({
    ...{ selector, dryRunSelector, limits: config.disaggregation, metrics: createSplitMetrics(meter) },
    roles: createFleetRoles(clock, notes),
    roleModel: (model) => fleet.model(model)?.parent ?? model,
  });
  return {
    planner,
    peers: createPeerIds({ http, fleet }),
    assignedRoleOf: (engine) =>
      planner.assignedRoleOf(engine, engine.models?.find(({ parent }) => parent === undefined)?.id),
  };
}

/** Peer ids of prefill engines, from their bootstrap servers (Mooncake). */
interface PeerIds {
  /** @returns undefined when it cannot be found out; a promise, which never rejects, when it must be requested */
  idOf(target: Target, queryUrl: string): string | undefined | Promise<string | undefined>;
  /** The engine may have another id by now. */
  forget(engine: EngineId): void;
}

const queryTimeoutMs = 2_000;
/** Largest answer of a bootstrap server. */
const maxAnswerBytes = 65_536;

type NamesByRank = Readonly<Record<string, string>>;

/** Names are kept while the engine is known, so there are never more entries than engines. */
function createPeerIds({ http, fleet }: { readonly http: HttpClient; readonly fleet: Fleet }): PeerIds {
  const known = new Map<EngineId, NamesByRank>();
  const asked = new Map<EngineId, Promise<NamesByRank | undefined>>();
  fleet.onChange((change, engine) => {
    if (change === "gone" || change === "restarted" || change === "state") known.delete(engine.id);
  });

  const ask = (engine: EngineId, queryUrl: string): Promise<NamesByRank | undefined> => {
    const pending = asked.get(engine);
    if (pending) return pending;
    const answer = http({ url: queryUrl, timeoutMs: queryTimeoutMs, maxBytes: maxAnswerBytes })
      .then(({ status, body }) => (status === 200 ? readNames(body) : undefined))
      .catch(() => undefined)
      .then((names) => {
        asked.delete(engine);
        if (names && fleet.engine(engine)) known.set(engine, names);
        return names;
      });
    asked.set(engine, answer);
    return answer;
  };

  return {
    idOf(target, queryUrl) {
      const { id } = target.engine;
      const names = known.get(id);
      if (names) return names[rankNumber(target)];
      return ask(id, queryUrl).then((found) => found?.[rankNumber(target)]);
    },
    forget: (engine) => void known.delete(engine),
  };
}

function readNames(body: string): NamesByRank | undefined {
  const ranks = parseJson(body);
  if (typeof ranks !== "object" || ranks === null) return undefined;
  const names = Object.entries(ranks).flatMap(([rank, entry]: [string, unknown]) =>
    isJsonObject(entry) && typeof entry.engine_id === "string" ? [[rank, entry.engine_id] as const] : [],
  );
  return Object.fromEntries(names);
}
