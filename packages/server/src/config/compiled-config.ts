import { type EngineSpec, isLoopback, type KvEventsSpec } from "@espalier/core";
import type { TSchema } from "typebox";
import { sha256Of } from "./cross-checks.ts";
import type { Environment } from "./interpolate.ts";
import { type Fingerprints, fingerprintsOf } from "./reload.ts";
import { type ConfigTree, configSchema } from "./schema.ts";
import { shapeOf } from "./schema-builders.ts";
import { mask } from "./secret.ts";
import { compileDiscovery, type DiscoveryConfig } from "./sections/discovery.ts";
import { compileEngines } from "./sections/engines.ts";
import { compileMesh, type MeshConfig } from "./sections/mesh.ts";
import { compileOverflow, type OverflowConfig, overflowWarnings } from "./sections/overflow.ts";
import { compileTracing, type TracingConfig } from "./sections/tracing.ts";
import { type SettingsOf, settingsOf } from "./settings-of.ts";

/** Paths of PEM files of a listener. With `caFile`, clients must present a certificate. */
export type ListenerTls = NonNullable<Settings["listen"]["tls"]>;

export type TokenizerConfig = Settings["tokenizers"][number];

/** How a router serves Envoy gateways as their endpoint picker. */
export type EndpointPickerConfig = Settings["endpointPicker"] & { readonly port: number };

/** How many engines the load needs, and who is told. */
export interface ScaleConfig extends Omit<Settings["scale"], "host" | "port" | "tls"> {
  /** Listener of the external scaler; undefined without one. */
  readonly listen: { readonly host: string; readonly port: number; readonly tls: ListenerTls | undefined } | undefined;
}

export interface ApiKey {
  readonly name: string;
  /** SHA-256 of the key: 32 bytes. */
  readonly sha256: Buffer;
}

/** A policy by name. Options that were not set are absent: the policy has its own defaults. */
export interface PolicyConfig {
  readonly name: string;
  readonly options: Readonly<Record<string, number | string>>;
}

export type PoolConfig = Omit<Settings["pools"][number], "policy"> & { readonly policy: PolicyConfig };

/** A pool of KV blocks outside the engines, and which engines use it. */
export interface KvPoolConfig {
  readonly name: string;
  /** One stream of events: the endpoints are the same for every rank. */
  readonly events: KvEventsSpec;
  /** Models whose engines use the pool, by name; `*` matches any text. */
  readonly models: readonly string[];
  /** Labels that these engines must all have. */
  readonly labels: Readonly<Record<string, string>>;
}

/** A place to look for a session key. Names of headers are in lower case. */
export interface SessionKeySource {
  readonly from: "header" | "body";
  readonly name: string;
}

/** Which requests wait while engines are saturated. */
export type AdmissionConfig = Settings["admission"];

/** Every setting under the name that the schema gives it. */
interface Settings extends SettingsOf<typeof configSchema> {}

/** Settings in another form than the file's. */
interface Prepared {
  readonly admin: Omit<Settings["admin"], "key"> & {
    /** Origin by which browsers reach it: scheme, host and port. */
    readonly advertise: string | undefined;
    /** SHA-256 of the admin key: 32 bytes. Undefined leaves the admin listener open, on a loopback address only. */
    readonly keySha256: Buffer | undefined;
  };
  /** Undefined when the router is no endpoint picker of gateways. */
  readonly endpointPicker: EndpointPickerConfig | undefined;
  readonly scale: ScaleConfig;
  /** Empty: every client is accepted. */
  readonly apiKeys: readonly ApiKey[];
  readonly engines: readonly EngineSpec[];
  readonly discovery: DiscoveryConfig;
  readonly policy: PolicyConfig;
  readonly sessionKey: readonly SessionKeySource[];
  /** The first pool with a matching pattern applies. A model without one has `policy` and no credentials. */
  readonly pools: readonly PoolConfig[];
  /** Providers that answer when the engines cannot, in the order in which they are tried. */
  readonly overflow: readonly OverflowConfig[];
  readonly kvPools: readonly KvPoolConfig[];
  readonly mesh: MeshConfig;
  readonly tracing: TracingConfig;
  /** Settings that are allowed but probably mistakes, in sentences. */
  readonly warnings: readonly string[];
  /** The configuration in the form of the file, with all defaults and with secrets masked. */
  readonly effective: ConfigTree;
  /** For `changedPaths`. */
  readonly fingerprints: Fingerprints;
}

/** The configuration as the router uses it: checked, complete, in the units given by the names. */
export interface CompiledConfig extends Omit<Settings, keyof Prepared>, Prepared {
  /** Whether there is a file without any content. */
  readonly isFileBlank: boolean;
}

/** Compiles a checked tree into the form that the router uses. API keys and the admin key are kept as hashes only. */
export function compileConfig(
  tree: ConfigTree,
  { env, isFileBlank }: { env: Environment; isFileBlank: boolean },
): CompiledConfig {
  const settings: Settings = settingsOf(configSchema, tree);
  return { ...settings, ...prepare(settings, tree, env), isFileBlank };
}

function prepare(settings: Settings, tree: ConfigTree, env: Environment): Prepared {
  return {
    admin: compileAdmin(settings.admin),
    endpointPicker: compileEndpointPicker(settings.endpointPicker),
    scale: compileScale(settings.scale),
    apiKeys: settings.apiKeys.map(compileApiKey),
    engines: compileEngines(tree.engines),
    discovery: compileDiscovery(tree, env),
    policy: compilePolicy(tree.policy),
    sessionKey: settings.sessionKey.map(compileSource),
    pools: settings.pools.map((pool, at) => ({
      ...pool,
      policy: compilePolicy(tree.pools[at]?.policy ?? tree.policy),
    })),
    overflow: compileOverflow(tree),
    kvPools: settings.kvPools.map(({ name, endpoint, replay, topic, models, labels }) => ({
      ...{ name, models, labels },
      events: { endpoint, replayEndpoint: replay, topic },
    })),
    mesh: compileMesh(settings.mesh, tree.mesh),
    tracing: compileTracing(settings.tracing),
    warnings: warningsOf(tree),
    effective: maskSecrets(configSchema, tree) as ConfigTree,
    fingerprints: fingerprintsOf(tree),
  };
}

function compileAdmin({ key, advertise, ...admin }: Settings["admin"]): Prepared["admin"] {
  return {
    ...admin,
    advertise: advertise === undefined ? undefined : new URL(advertise).origin,
    keySha256: key === undefined ? undefined : sha256Of(key.reveal()),
  };
}

function compileEndpointPicker({ port, ...picker }: Settings["endpointPicker"]): EndpointPickerConfig | undefined {
  return port === undefined ? undefined : { ...picker, port };
}

function compileScale({ host, port, tls, ...scale }: Settings["scale"]): ScaleConfig {
  return { ...scale, listen: port === undefined ? undefined : { host, port, tls } };
}

function compileApiKey({ name, key, keySha256 }: Settings["apiKeys"][number]): ApiKey {
  return { name, sha256: keySha256 ? Buffer.from(keySha256.reveal(), "hex") : sha256Of(key?.reveal() ?? "") };
}

function compilePolicy({ name, ...options }: ConfigTree["policy"]): PolicyConfig {
  return { name, options };
}

function compileSource(written: string): SessionKeySource {
  const [from, name] = [written.slice(0, written.indexOf(":")), written.slice(written.indexOf(":") + 1)];
  return from === "header" ? { from, name: name.toLowerCase() } : { from: "body", name };
}

function warningsOf(tree: ConfigTree): string[] {
  const warnings: string[] = [];
  const { dns, services, pods, "inference-pools": inferencePools } = tree.discovery;
  const hasSources = [dns, services, pods, inferencePools].some((sources) => sources.length > 0);
  if (tree.engines.length === 0 && tree["engines-file"] === undefined && !hasSources) {
    warnings.push("No engines are configured; the router is not ready until some are added.");
  }
  if (tree["api-keys"].length === 0 && !isLoopback(tree.listen.host)) {
    warnings.push(`Anyone who reaches ${tree.listen.host}:${tree.listen.port} can use the engines: api-keys is empty.`);
  }
  if (!tree["engine-tls"].verify) warnings.push("Certificates of engines are not checked: engine-tls.verify is false.");
  for (const { url } of compileEngines(tree.engines).filter((engine) => engine.url.endsWith("/v1"))) {
    warnings.push(`The router asks for ${url}/v1/models. Leave out the /v1 at the end of ${url}.`);
  }
  return [...warnings, ...overflowWarnings(tree)];
}

function maskSecrets(schema: TSchema, tree: unknown): unknown {
  const shape = shapeOf(schema);
  if (shape.form === "leaf") return shape.notes.isSecret ? mask : tree;
  if (shape.form === "list") return (tree as readonly unknown[]).map((item) => maskSecrets(shape.items, item));
  const schemaOf = (key: string): TSchema => (shape.form === "section" ? shape.properties[key]! : shape.values);
  const entries = Object.entries(tree as object).map(([key, value]) => [key, maskSecrets(schemaOf(key), value)]);
  return Object.fromEntries(entries);
}
