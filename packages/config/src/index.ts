/**
 * Configuration. One schema drives the merge of file, environment and flags, the checks, the compiled form, the documentation
 * and the JSON Schema.
 */
export type {
  AdmissionConfig,
  ApiKey,
  CompiledConfig,
  EndpointPickerConfig,
  KvPoolConfig,
  ListenerTls,
  PolicyConfig,
  PoolConfig,
  PriorityDirection,
  ScaleConfig,
  SessionKeySource,
  TokenizerConfig,
  WeightedModel,
} from "./compiled-config.ts";
export { configJsonSchema, describeConfig, renderConfigurationDocs, renderConfigYaml, writeYaml } from "./documents.ts";
export type { Environment } from "./interpolate.ts";
export { type ConfigFile, type ConfigSources, loadConfig } from "./load-config.ts";
export type { FlagValues } from "./overlay.ts";
export { formatPath, type Path, type Problem, problemsError } from "./problems.ts";
export { applyReload, changedPaths, isAppliedOnReload, isReloadable, sharedSettings } from "./reload.ts";
export type { ConfigTree } from "./schema.ts";
export { Secret } from "./secret.ts";
export type { DiscoveryConfig } from "./sections/discovery.ts";
export { parseEnginesFile } from "./sections/engines.ts";
export { type MeshConfig, parseSeedsFile, type SeedSourcesConfig } from "./sections/mesh.ts";
export type { OverflowConfig, OverflowReason } from "./sections/overflow.ts";
export type { TracingConfig } from "./sections/tracing.ts";
export { type FlagEntry, flagCatalogue } from "./settings.ts";
export { formatDuration, formatSize } from "./units.ts";
export { parseYaml, type YamlDocument } from "./yaml-document.ts";
