import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { checkArchitectureTable } from "./architecture-table.ts";
import { checkDanglingImports, checkDeadExports, checkDeadFiles, checkUnwired } from "./dead-code.ts";
import { checkCommands, checkLinks, checkScripts } from "./docs.ts";
import { allowedImports, portExceptions } from "./house-rules.ts";
import {
  checkArrows,
  checkCycles,
  checkDeclaredWorkspaces,
  checkImportPaths,
  checkReferences,
} from "./import-graph.ts";
import {
  checkDeclaredLibraries,
  checkLibraryDeclarations,
  checkLibraryOwners,
  checkNoRegistryHosts,
  checkWorkspaceVersions,
} from "./libraries.ts";
import { checkFileSizes, checkManifests, checkNoBuildProducts, checkTsconfigs } from "./packaging.ts";
import { checkNoSleeping, checkPorts } from "./ports.ts";
import {
  checkComments,
  checkConstructs,
  checkDocComments,
  checkFileNames,
  checkIndexFiles,
  checkTestModifiers,
  checkTexts,
} from "./style.ts";
import { loadTree, renderViolations, type Tree, type Violation } from "./tree.ts";

const tree = loadTree(fileURLToPath(new URL("../..", import.meta.url)));

const checks: Readonly<Record<string, (tree: Tree) => readonly Violation[]>> = {
  "packages import along the arrows": (all) => checkArrows(all, allowedImports),
  "workspace packages that are imported are declared, and the reverse": checkDeclaredWorkspaces,
  "project references equal dependencies": checkReferences,
  "packages have no cycles": checkCycles,
  "imports stay inside their package": checkImportPaths,
  "ARCHITECTURE.md draws the real graph": checkArchitectureTable,
  "each library has one owner": checkLibraryOwners,
  "imported libraries are declared": checkDeclaredLibraries,
  "declared libraries are pinned and used": checkLibraryDeclarations,
  "workspace packages have one version": checkWorkspaceVersions,
  "no package registry is named": checkNoRegistryHosts,
  "no file is large": checkFileSizes,
  "time, timers, randomness, console and environment come through ports": (all) => checkPorts(all, portExceptions),
  "tests do not sleep": checkNoSleeping,
  "constructs that the house does not use are absent": checkConstructs,
  "files are named in kebab-case": checkFileNames,
  "comments say why": checkComments,
  "documents and configuration are finished": checkTexts,
  "no test is singled out, skipped or retried": checkTestModifiers,
  "index files hold re-exports only": checkIndexFiles,
  "what is public is documented": checkDocComments,
  "every file is reached": checkDeadFiles,
  "every relative import names a file": checkDanglingImports,
  "every export is imported": checkDeadExports,
  "what packages make public is wired": checkUnwired,
  "links in documents lead somewhere": checkLinks,
  "commands in documents exist": checkCommands,
  "programs of package.json files exist": checkScripts,
  "package.json files agree": checkManifests,
  "tsconfig.json files agree": checkTsconfigs,
  "no build product is tracked": checkNoBuildProducts,
};

test.each(Object.entries(checks))("%s", (_name, check) => {
  expect(renderViolations(check(tree))).toBe("");
});
