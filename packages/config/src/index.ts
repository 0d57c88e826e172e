/**
 * Configuration: one schema, from which the merge of file, environment and flags, the checks, the compiled form, the
 * documents and the JSON Schema come.
 */
export type {
  AdmissionConfig,
  ApiKey,
  CompiledConfig,
  KvPoolConfig,
  ListenerTls,
  PolicyConfig,
  PoolConfig,
  PriorityDirection,
  SessionKeySource,
  TokenizerConfig,
  WeightedModel,
} from "./compiled-config.ts";
export { describeConfig, renderConfigYaml } from "./describe.ts";
export type { DiscoveryConfig } from "./discovery-config.ts";
export { renderConfigurationDocs } from "./documents.ts";
export { parseEnginesFile } from "./engines-file.ts";
export { type FlagEntry, flagCatalogue } from "./flag-catalogue.ts";
export type { Environment } from "./interpolate.ts";
export { configJsonSchema } from "./json-schema.ts";
export { type ConfigFile, type ConfigSources, loadConfig } from "./load-config.ts";
export type { MeshConfig, SeedSourcesConfig } from "./mesh-config.ts";
export type { FlagValues } from "./overlay.ts";
export { changedPaths, isReloadable, isTakenUp, takeUp } from "./reload.ts";
export type { ConfigTree } from "./schema/config-schema.ts";
export { Secret } from "./secret.ts";
export { parseSeedsFile } from "./seeds-file.ts";
export type { TracingConfig } from "./tracing-config.ts";
