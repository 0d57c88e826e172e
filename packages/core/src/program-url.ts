/**
 * The program of a thread or a child process: TypeScript beside a module that runs from its sources, JavaScript beside
 * one that was built.
 *
 * @param path without its extension, relative to the module
 * @param moduleUrl `import.meta.url` of the module
 * @example new Worker(programUrl("./hash-worker", import.meta.url))
 */
export function programUrl(path: string, moduleUrl: string): URL {
  return new URL(`${path}${moduleUrl.endsWith(".ts") ? ".ts" : ".js"}`, moduleUrl);
}
