import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import {
  checkBenchmarks,
  checkCommands,
  checkFeedReasons,
  checkFigures,
  checkLengths,
  checkLinks,
  checkTests,
} from "./documents.ts";
import { checkFolders } from "./folders.ts";
import { productionFlags, runKnip } from "./knip.ts";
import { checkInstallScripts, checkPlatforms } from "./lock.ts";
import { checkArrows, checkNoBuildProducts, checkReferences, checkTestImports, checkVersions } from "./packages.ts";
import { checkPatterns } from "./patterns.ts";
import { loadTree, type Tree } from "./tree.ts";
import { checkMessages, checkWords } from "./words.ts";
import { checkActions, checkRights, runActionlint } from "./workflows.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const tree = loadTree(root);

const checks: Readonly<Record<string, (tree: Tree) => readonly string[]>> = {
  "packages depend along the arrows of ARCHITECTURE.md": checkArrows,
  "folders of a package depend downwards": checkFolders,
  "project references equal dependencies": checkReferences,
  "tests do not import files of other packages": checkTestImports,
  "versions are pinned": checkVersions,
  "lock files hold the native packages of every system": checkPlatforms,
  "install scripts of libraries are allowed or denied": checkInstallScripts,
  "no build product is tracked": checkNoBuildProducts,
  "actions of workflows are pinned by commit": checkActions,
  "workflows take the least rights, and publish without actions of others": checkRights,
  "sources go through ports, tests do not sleep, and no registry is named": checkPatterns,
  "names are the words of the field": checkWords,
  "messages have no words that documents avoid": checkMessages,
  "documents are short": checkLengths,
  "links in documents lead somewhere": checkLinks,
  "commands in documents exist": checkCommands,
  "operators are told what each reason of a feed's state means": checkFeedReasons,
  "tests that documents name exist, and each section of the threat model names some": checkTests,
  "measured figures of documents are in BENCHMARKS, or made from its data": checkFigures,
  "every page of benchmarks is listed, and BENCHMARKS has its figures from them": checkBenchmarks,
};

test.each(Object.entries(checks))("%s", (_name, check) => {
  expect(check(tree).join("\n")).toBe("");
});

test.concurrent.for([
  ["every file, export and dependency is used, and every import is declared", []],
  ["what is built needs no test to be reached, and no dependency of development", productionFlags],
] as const)("%s", { timeout: 120_000 }, async ([, flags], { expect }) => {
  expect(await runKnip(root, flags)).toBe("");
});

test.concurrent("actionlint finds nothing in the workflows", { timeout: 120_000 }, async ({ expect }) => {
  expect(await runActionlint(root)).toBe("");
});
