/**
 * Configuration. One schema drives the merge of file, environment and flags, the checks, the compiled form, the documentation
 * and the JSON Schema.
 */
export type {
  AdmissionConfig,
  CompiledConfig,
  EndpointPickerConfig,
  KvPoolConfig,
  ListenerTls,
  PoolConfig,
  RolloutsConfig,
  ScaleConfig,
  TokenizerConfig,
} from "./compiled-config.ts";
export { configJsonSchema, describeConfig, renderConfigurationDocs, renderConfigYaml, writeYaml } from "./documents.ts";
export type { Environment } from "./interpolate.ts";
export { type ConfigSources, loadConfig } from "./load-config.ts";
export type { FlagValues } from "./overlay.ts";
export { formatPath, type Path, type Problem, problemsError } from "./problems.ts";
export { applyReload, changedPaths, isAppliedOnReload, isReloadable, sharedSettings } from "./reload.ts";

export { Secret } from "./secret.ts";
export type { DiscoveryConfig } from "./sections/discovery.ts";
export { parseEnginesFile } from "./sections/engines.ts";
export { type MeshConfig, parseSeedsFile } from "./sections/mesh.ts";
export type { OverflowConfig, OverflowReason } from "./sections/overflow.ts";
export type { TracingConfig } from "./sections/tracing.ts";
export { type FlagEntry, flagCatalogue, replacedNames } from "./settings.ts";
export { parseYaml } from "./yaml-document.ts";
