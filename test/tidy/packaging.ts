import { isDeepStrictEqual } from "node:util";
import { isCode, type Tree, type Violation } from "./tree.ts";
import { isBuilt, type Manifest, rootWorkspace, type Workspace, workspacesOf } from "./workspaces.ts";

/** What every package.json says in the same words. */
const common = { private: true, license: "Apache-2.0", type: "module" } as const;

/** What every package.json of a package or app says besides. */
const built: Pick<Manifest, "exports"> = {
  exports: {
    ".": { "espalier-source": "./src/index.ts", types: "./dist/index.d.ts", default: "./dist/index.js" },
  },
};

/** Folders beside `src` that a package reads from when it runs: without them it works in this tree only. */
const dataFolders = ["models"];

function filesOf(tree: Tree, { folder }: Workspace): string[] {
  const paths = [...tree.keys()];
  return ["dist", ...dataFolders.filter((name) => paths.some((path) => path.startsWith(`${folder}/${name}/`)))];
}

/** Every package.json has the same license, type, version and shape, and a name that follows from its folder. */
export function checkManifests(tree: Tree): Violation[] {
  const root = rootWorkspace(tree);
  if (!root) return [{ file: "package.json", line: 1, message: "is missing: add it" }];
  return [root, ...workspacesOf(tree)].flatMap((workspace) => {
    const expected: Manifest = {
      ...common,
      ...(root.manifest.version === undefined ? {} : { version: root.manifest.version }),
      name: workspace.folder === "" ? "espalier" : `@espalier/${workspace.name}`,
      ...(isBuilt(workspace) && !workspace.folder.startsWith("apps/")
        ? { ...built, files: filesOf(tree, workspace) }
        : {}),
    };
    return [...differences(workspace, expected), ...missingFields(workspace)];
  });
}

function differences({ file, text, manifest }: Workspace, expected: Manifest): Violation[] {
  const found: Violation[] = [];
  for (const [key, value] of Object.entries(expected)) {
    const actual = manifest[key as keyof Manifest];
    if (isDeepStrictEqual(actual, value)) continue;
    const line = text.slice(0, Math.max(0, text.indexOf(`"${key}":`))).split("\n").length;
    found.push({ file, line, message: `has ${key} ${JSON.stringify(actual)}: make it ${JSON.stringify(value)}` });
  }
  return found;
}

function missingFields(workspace: Workspace): Violation[] {
  const { file, manifest } = workspace;
  const found: Violation[] = [];
  if (!manifest.version) found.push({ file, line: 1, message: "has no version: add it" });
  if (!manifest.description) found.push({ file, line: 1, message: "has no description: add one line" });
  // What is not for Node is bundled afterwards, by a program of the package.
  if (isBuilt(workspace) && !/^tsc -b( && node bin\/[\w-]+\.mjs)?$/.test(manifest.scripts?.build ?? "")) {
    found.push({ file, line: 1, message: "does not build with `tsc -b`: set that script" });
  }
  return found;
}

/** The tsconfig.json files of packages and apps differ in their references only. */
export function checkTsconfigs(tree: Tree): Violation[] {
  const expected = {
    compilerOptions: { rootDir: "src", outDir: "dist", tsBuildInfoFile: "dist/.tsbuildinfo" },
    include: ["src/**/*.ts"],
  };
  return workspacesOf(tree)
    .filter(isBuilt)
    .map(({ folder }) => `${folder}/tsconfig.json`)
    .filter((file) => {
      const { references: _, extends: base, ...rest } = JSON.parse(tree.get(file) ?? "{}");
      return !/^(\.\.\/)+tsconfig\.base\.json$/.test(base) || !isDeepStrictEqual(rest, expected);
    })
    .map((file) => ({ file, line: 1, message: "differs from the other packages in more than references: align it" }));
}

/** Nothing that a build or a profiler makes is tracked, and code is TypeScript (`.mjs` that runs before a build aside: scripts, `deploy`, examples, `bin`, programs of tests). */
export function checkNoBuildProducts(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const file of tree.keys()) {
    const isBuilt = /(^|\/)(dist|coverage|node_modules|\.turbo)\/|\.tsbuildinfo$|\.d\.[cm]?ts$|\.map$/.test(file);
    const isMeasured = /\.(log|cpuprofile|heapsnapshot|heapprofile)$|(^|\/)perf\.data/.test(file);
    const isScript =
      isCode(file) &&
      /\.[cm]?jsx?$/.test(file) &&
      !/^(scripts|deploy|examples|test|apps\/[^/]+\/bin)\/.*\.mjs$/.test(file);
    if (isBuilt || isMeasured) found.push({ file, line: 1, message: "is made by a tool: do not track it" });
    else if (isScript) found.push({ file, line: 1, message: "is JavaScript: write TypeScript" });
  }
  return found;
}

const maxFileBytes = 1024 * 1024;

/** No tracked file is larger than 1 MiB. */
export function checkFileSizes(tree: Tree): Violation[] {
  const found: Violation[] = [];
  for (const [file, text] of tree) {
    const bytes = text.includes("\0") ? text.length : Buffer.byteLength(text);
    if (bytes <= maxFileBytes) continue;
    found.push({ file, line: 1, message: `has ${bytes} bytes, ${maxFileBytes} are allowed: make it when needed` });
  }
  return found;
}
