/** Sources of engines: a static list and a watched file, and their union. */
export type { EngineSource, SourceObserver } from "./engine-source.ts";
export { createFileSource, type FileSourceOptions } from "./file-source.ts";
export { mergeSources } from "./merge-sources.ts";
export { createStaticSource } from "./static-source.ts";
