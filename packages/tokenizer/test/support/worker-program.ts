import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "vite";

const entry = fileURLToPath(new URL("../../src/workers/tokenizer-worker.ts", import.meta.url));

/** The program of a tokenizer thread, made of the sources as they are now: Node itself runs no TypeScript. */
export interface WorkerProgram {
  readonly url: URL;
  remove(): Promise<void>;
}

export async function buildWorkerProgram(): Promise<WorkerProgram> {
  const folder = await mkdtemp(join(tmpdir(), "espalier-worker-"));
  const fileName = "worker.mjs";
  await build({
    configFile: false,
    logLevel: "error",
    resolve: { conditions: ["espalier-source"] },
    ssr: { noExternal: true, resolve: { conditions: ["espalier-source"] } },
    build: {
      ssr: entry,
      outDir: folder,
      emptyOutDir: false,
      minify: false,
      rolldownOptions: { output: { entryFileNames: fileName } },
    },
  });
  return {
    url: pathToFileURL(join(folder, fileName)),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
