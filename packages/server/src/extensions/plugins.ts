import { existsSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { EspalierError } from "@espalier/core";
import {
  type CustomPolicies,
  type CustomPolicy,
  composeCustomPolicy,
  maxCustomPolicies,
  policyNames,
} from "@espalier/policies";
import { checkPolicy } from "@espalier/policies/conformance";
import { type Hooks, hookNames } from "./hooks.ts";

/** What plugins bring: arguments of `createRouter`. */
export interface LoadedPlugins {
  readonly policies: CustomPolicies;
  readonly hooks: readonly Hooks[];
}

/**
 * Loads the modules of `plugins`. Each exports `policies`, `hooks`, or both.
 *
 * @param paths absolute paths: `plugins` of a compiled configuration
 * @throws EspalierError `plugin_invalid`, naming the file, what is wrong with it and what to do
 */
export async function loadPlugins(paths: readonly string[]): Promise<LoadedPlugins> {
  const policies: Record<string, CustomPolicy> = {};
  const hooks: Hooks[] = [];
  for (const path of paths) {
    const wrong = (problem: string, cause?: unknown): EspalierError =>
      new EspalierError("plugin_invalid", `plugins: ${path}: ${problem}`, { cause });
    if (!existsSync(path)) throw wrong("file not found; relative paths start at the configuration file's folder");
    const module = await import(pathToFileURL(path).href).catch((error: unknown) => {
      throw wrong(`cannot be loaded: ${messageOf(error)}; run \`node ${path}\` for details`, error);
    });
    const found = module as { readonly policies?: CustomPolicies; readonly hooks?: Hooks };
    if (found.policies === undefined && found.hooks === undefined) {
      throw wrong("exports neither `policies` nor `hooks`; add a named export, see docs/guides/extend.md");
    }
    try {
      checkCustomPolicies(found.policies ?? {});
      checkHooks(found.hooks ?? {});
    } catch (error) {
      throw wrong(messageOf(error), error);
    }
    for (const [name, policy] of Object.entries(found.policies ?? {})) {
      if (Object.hasOwn(policies, name)) throw wrong(`duplicate policy ${name} in another plugin; rename one`);
      policies[name] = policy;
    }
    if (found.hooks) hooks.push(found.hooks);
  }
  return { policies, hooks };
}

/** Enough to find a policy that is wrong in general, in a few milliseconds. */
const trialRuns = 50;

/**
 * Composes each policy and tries it on random candidates.
 *
 * @throws EspalierError `config_invalid`, or ConformanceError
 */
export function checkCustomPolicies(policies: CustomPolicies): void {
  const names = Object.keys(policies);
  if (names.length > maxCustomPolicies) {
    throw new EspalierError("config_invalid", `${names.length} policies are more than ${maxCustomPolicies}`);
  }
  for (const name of names) {
    if (policyNames.some((known) => known === name)) {
      throw new EspalierError("config_invalid", `policy ${name}: name of a built-in policy; choose another name`);
    }
    const create = () => composeCustomPolicy(name, policies[name]!);
    create();
    checkPolicy(create, { runs: trialRuns, maxChoiceMs: Number.POSITIVE_INFINITY });
  }
}

/** @throws EspalierError `config_invalid` */
export function checkHooks(hooks: Hooks): void {
  for (const [name, hook] of Object.entries(hooks)) {
    if (!hookNames.some((known) => known === name)) {
      throw new EspalierError("config_invalid", `hooks.${name} is not one of ${hookNames.join(", ")}`);
    }
    if (hook !== undefined && typeof hook !== "function") {
      throw new EspalierError("config_invalid", `hooks.${name} must be a function`);
    }
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
