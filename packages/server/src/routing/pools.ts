import type { Policy } from "@espalier/policies";
import type { PoolWork } from "@espalier/routing";
import { globPattern } from "./glob-pattern.ts";

/** What the engines of one model share: how they are chosen and what they are told. */
export interface PoolSettings {
  /** The served model's name, or `*` for requests that name none. */
  readonly model: string;
  readonly policy: Policy;
  /** What is learned of the times that its engines take. */
  readonly work: PoolWork;
  /** Flat name and value pairs added to every request to an engine of the pool: its credentials. */
  readonly upstreamHeaders: readonly string[];
  /** Whether the client's own `authorization` is passed on. */
  readonly forwardAuthorization: boolean;
}

export interface Pools {
  /** The settings of a model's pool, made on first use. */
  settingsFor(model: string): PoolSettings;
}

export interface PoolRule {
  /** Model names; `*` stands for any run of characters. */
  readonly models: readonly string[];
  readonly createPolicy: () => Policy;
  readonly upstreamHeaders: readonly string[];
  readonly forwardAuthorization: boolean;
}

/** Pools whose settings are kept. Models beyond it, which only a changing fleet can name, share the last rule's. */
export const maxPools = 1_024;

/**
 * @param rules the first one whose pattern fits decides; the last one must fit every model
 * @param workOf gives what is learned of the engines of a model
 */
export function createPools(rules: readonly PoolRule[], workOf: (model: string) => PoolWork): Pools {
  const compiled = rules.map((rule) => ({ rule, patterns: rule.models.map(globPattern) }));
  const fallback = rules.at(-1);
  if (!fallback) throw new RangeError("at least one pool rule is needed");
  const settings = new Map<string, PoolSettings>();

  const create = (model: string, rule: PoolRule): PoolSettings => {
    const { upstreamHeaders, forwardAuthorization } = rule;
    const created = {
      model,
      policy: rule.createPolicy(),
      work: workOf(model),
      upstreamHeaders,
      forwardAuthorization,
    };
    settings.set(model, created);
    return created;
  };
  return {
    settingsFor(model) {
      const known = settings.get(model);
      if (known) return known;
      const match = compiled.find(({ patterns }) => patterns.some((pattern) => pattern.test(model)))?.rule ?? fallback;
      if (settings.size < maxPools) return create(model, match);
      return settings.get("*") ?? create("*", fallback);
    },
  };
}
