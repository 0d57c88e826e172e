import { type EngineSpec, isLoopback } from "@espalier/core";
import type { Environment } from "./interpolate.ts";
import { type Fingerprints, fingerprintsOf } from "./reload.ts";
import { type ConfigTree, configSchema } from "./schema.ts";
import { mapTree, notesOf } from "./schema-builders.ts";
import { mask } from "./secret.ts";
import { type DiscoveryConfig, withApiServer } from "./sections/discovery.ts";
import { overflowWarnings } from "./sections/overflow.ts";
import type { PolicyConfig } from "./sections/policies.ts";
import { type SettingsOf, settingsOf } from "./settings-of.ts";

/** Every setting under the name that the schema gives it. */
interface Settings extends SettingsOf<typeof configSchema> {}

/** Paths of PEM files of a listener. With `caFile`, clients must present a certificate. */
export type ListenerTls = NonNullable<Settings["listen"]["tls"]>;

export type TokenizerConfig = Settings["tokenizers"][number];

/** How a router serves Envoy gateways as their endpoint picker. */
export type EndpointPickerConfig = NonNullable<Settings["endpointPicker"]>;

/** How many engines the load needs, and the listener of the external scaler: none without a port. */
export type ScaleConfig = Settings["scale"];

/** The listener for RL frameworks. */
export type RolloutsConfig = NonNullable<Settings["rollouts"]>;

/** A pool of KV blocks outside the engines, and which engines use it. It has one stream of events. */
export type KvPoolConfig = Settings["kvPools"][number];

/** Which requests wait while engines are saturated. */
export type AdmissionConfig = Settings["admission"];

/** Settings for some models. */
export interface PoolConfig extends Omit<Settings["pools"][number], "policy"> {
  readonly policy: PolicyConfig;
}

/** The configuration as the router uses it: checked, complete, in the units given by the names. */
export interface CompiledConfig extends Omit<Settings, "discovery" | "pools"> {
  readonly discovery: DiscoveryConfig;
  /** The first pool with a matching pattern applies. A model without one has `policy` and no credentials. */
  readonly pools: readonly PoolConfig[];
  /** Settings that are allowed but probably mistakes, in sentences. */
  readonly warnings: readonly string[];
  /** The configuration in the form of the file, with all defaults and with secrets masked. */
  readonly effective: ConfigTree;
  /** For `changedPaths`. */
  readonly fingerprints: Fingerprints;
  /** Whether there is a file without any content. */
  readonly isFileBlank: boolean;
}

/**
 * Compiles a checked tree into the form that the router uses. A section's schema says what that is; here is only what more than
 * one section decides, or the environment.
 */
export function compileConfig(
  tree: ConfigTree,
  { env, isFileBlank }: { env: Environment; isFileBlank: boolean },
): CompiledConfig {
  const settings: Settings = settingsOf(configSchema, tree);
  const { discovery, pools, policy } = settings;
  return {
    ...settings,
    discovery: withApiServer(discovery, env),
    pools: pools.map((pool) => ({ ...pool, policy: pool.policy ?? policy })),
    warnings: warningsOf(tree, settings.engines),
    effective: mapTree(configSchema, tree, (of, value) => (notesOf(of).isSecret ? mask : value)) as ConfigTree,
    fingerprints: fingerprintsOf(tree),
    isFileBlank,
  };
}

function warningsOf(tree: ConfigTree, engines: readonly EngineSpec[]): string[] {
  const warnings: string[] = [];
  const { dns, services, pods, "inference-pools": inferencePools } = tree.discovery;
  const hasSources = [dns, services, pods, inferencePools].some((sources) => sources.length > 0);
  if (engines.length === 0 && tree["engines-file"] === undefined && !hasSources) {
    warnings.push("No engines are configured; the router is not ready until some are added.");
  }
  if (tree["api-keys"].length === 0 && !isLoopback(tree.listen.host)) {
    warnings.push(`${tree.listen.host}:${tree.listen.port} accepts every client: api-keys is empty.`);
  }
  if (!tree["engine-tls"].verify) warnings.push("Engine certificates are not verified: engine-tls.verify is false.");
  for (const { url } of engines.filter((engine) => engine.url.endsWith("/v1"))) {
    warnings.push(`The router requests ${url}/v1/models. Remove /v1 from the end of ${url}.`);
  }
  return [...warnings, ...overflowWarnings(tree)];
}
