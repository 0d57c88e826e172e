import { renderViolations, type Tree, type Violation } from "./tree.ts";

/** A small made-up tree, to break a rule in. */
export const treeOf = (files: Readonly<Record<string, string>>): Tree => new Map(Object.entries(files));

interface FakePackage {
  /** What its index imports, and its package.json and tsconfig.json declare. */
  readonly imports?: readonly string[];
  /** Libraries of others in its package.json, by name. */
  readonly libraries?: Readonly<Record<string, string>>;
  /** Further text of its index. */
  readonly source?: string;
}

/** The files of a package that follows the rules of the import graph. */
export function fakePackage(
  name: string,
  { imports = [], libraries = {}, source = "" }: FakePackage = {},
): Record<string, string> {
  const own = Object.fromEntries(imports.map((dependency) => [`@espalier/${dependency}`, "0.1.0"]));
  const manifest = { name: `@espalier/${name}`, version: "0.1.0", dependencies: { ...own, ...libraries } };
  const references = imports.map((dependency) => ({ path: `../${dependency}` }));
  const lines = imports.map((dependency) => `import type { Thing } from "@espalier/${dependency}";\n`);
  return {
    [`packages/${name}/package.json`]: JSON.stringify(manifest, null, 2),
    [`packages/${name}/tsconfig.json`]: JSON.stringify({ references }, null, 2),
    [`packages/${name}/src/index.ts`]: `${lines.join("")}${source}`,
  };
}

/** The violations as lines of text, to compare with what is expected. */
export const linesOf = (violations: readonly Violation[]): string[] =>
  renderViolations(violations).split("\n").filter(Boolean);
