import { didYouMean, formatDuration, isLoopback, plainHost } from "@espalier/core";
import type { Path, Problem } from "./problems.ts";
import type { ConfigTree } from "./schema.ts";
import { sha256Of } from "./secret.ts";
import { checkDiscovery } from "./sections/discovery.ts";
import { checkEngines } from "./sections/engines.ts";
import { checkMesh } from "./sections/mesh.ts";
import { checkOverflow } from "./sections/overflow.ts";
import { policyNameExpected, policyOptions } from "./sections/policies.ts";
import { checkRollouts } from "./sections/rollouts.ts";
import { checkTracing } from "./sections/tracing.ts";

/**
 * Checks that a schema cannot express: how values of different keys fit together.
 *
 * @param isSound whether a top-level key was read without a problem; the others are not checked
 * @param customPolicies policies that are not in the catalogue
 */
export function crossCheck(
  tree: ConfigTree,
  isSound: (key: keyof ConfigTree) => boolean,
  customPolicies: readonly string[],
): Problem[] {
  // What plugins bring is known when they are loaded.
  const isPolicy: IsPolicy = (name) => tree.plugins.length > 0 || customPolicies.includes(name);
  const checks: readonly (readonly [readonly (keyof ConfigTree)[], () => Problem[]])[] = [
    [["listen", "admin", "endpoint-picker", "scale", "rollouts"], () => checkListeners(tree)],
    [["processes", "listen", "admin", "endpoint-picker", "mesh", "kv-events", "rollouts"], () => checkProcesses(tree)],
    [["admin"], () => checkAdmin(tree)],
    [["rollouts"], () => checkRollouts(tree)],
    [["api-keys"], () => checkApiKeys(tree)],
    [["engines"], () => checkEngines(tree.engines, ["engines"])],
    [["discovery"], () => checkDiscovery(tree)],
    [["engine-tls"], () => checkEngineTls(tree)],
    [["breaker"], () => checkBreaker(tree)],
    [["policy", "plugins"], () => checkPolicy(tree.policy, ["policy"], isPolicy)],
    [["pools", "plugins"], () => checkPools(tree, isPolicy)],
    [["pools", "admission"], () => checkHolds(tree)],
    [["overflow"], () => checkOverflow(tree)],
    [["admission"], () => checkAdmission(tree)],
    [["disaggregation"], () => checkDisaggregation(tree)],
    [["models"], () => checkModels(tree)],
    [["tokenizers"], () => checkTokenizers(tree)],
    [["kv-pools", "kv-events"], () => checkKvPools(tree)],
    [["mesh"], () => checkMesh(tree)],
    [["tracing"], () => checkTracing(tree)],
  ];
  return checks.flatMap(([keys, check]) => (keys.every(isSound) ? check() : []));
}

/** Two listeners at one port: found here for a clear message, before the second one fails to start. */
function checkListeners({ listen, admin, scale, rollouts, "endpoint-picker": picker }: ConfigTree): Problem[] {
  const health = { path: ["endpoint-picker", "health-port"], host: picker.host, port: picker["health-port"] };
  const listeners = [
    { path: ["listen", "port"], host: listen.host, port: listen.port },
    { path: ["admin", "port"], host: admin.host, port: admin.port },
    ...(picker.port === undefined
      ? []
      : [{ path: ["endpoint-picker", "port"], host: picker.host, port: picker.port }, health]),
    ...(scale.port === undefined ? [] : [{ path: ["scale", "port"], host: scale.host, port: scale.port }]),
    ...(rollouts.port === undefined ? [] : [{ path: ["rollouts", "port"], host: rollouts.host, port: rollouts.port }]),
  ];
  return listeners.flatMap(({ path, host, port }, at) => {
    const other = listeners.slice(0, at).find((one) => port > 0 && one.port === port && areOneHost(one.host, host));
    if (!other) return [];
    const name = other.path[1] === "port" ? other.path[0] : other.path.join(".");
    return [{ path, message: `${port} is also the port of ${name}` }];
  });
}

/** Largest port. */
const maxPort = 65_535;

/** Each process has its own admin and mesh port, counted up from those of the first process. */
function checkProcesses(tree: ConfigTree): Problem[] {
  const { processes, listen, admin, mesh, rollouts, "endpoint-picker": picker } = tree;
  const events = tree["kv-events"].listen;
  if (processes === 1) return [];
  const problems: Problem[] = [];
  if (events !== undefined) {
    problems.push({
      path: ["kv-events", "listen"],
      message: "needs processes: 1 because only one process can listen there",
    });
  }
  // The number of processes with `auto` is known only at startup.
  if (processes === "auto") return problems;
  const shared = { listen, rollouts };
  const taken = Object.entries(shared).flatMap(([section, { host, port = 0 }]) =>
    port === 0 ? [] : [{ section, host, first: port, last: port }],
  );
  for (const [section, host, first] of [
    ["admin", admin.host, admin.port],
    ["endpoint-picker", picker.host, picker.port === undefined ? 0 : picker["health-port"]],
    ["mesh", mesh.host, mesh.port ?? 0],
  ] as const) {
    const last = first + processes - 1;
    // 0 takes any free port.
    if (first === 0) continue;
    const path = [section, section === "endpoint-picker" ? "health-port" : "port"];
    const other = taken.find((one) => areOneHost(one.host, host) && first <= one.last && one.first <= last);
    if (last > maxPort)
      problems.push({ path, message: `${first} is too high for the ports of ${processes} processes` });
    else if (other && other.first !== first) {
      const message = `${first} to ${last}, for ${processes} processes, overlaps a port of ${other.section}`;
      problems.push({ path, message });
    }
    taken.push({ section, host, first, last });
  }
  return problems;
}

/** Whether one port cannot be listened on at both. */
function areOneHost(one: string, other: string): boolean {
  const isEverywhere = (host: string): boolean => host === "0.0.0.0" || host === "::";
  return one === other || isEverywhere(one) || isEverywhere(other);
}

function checkAdmin({ admin }: ConfigTree): Problem[] {
  const { host, key, advertise } = admin;
  if (advertise !== undefined && !URL.canParse(advertise)) {
    return [{ path: ["admin", "advertise"], message: `${JSON.stringify(advertise)} is not a URL` }];
  }
  const named = advertise === undefined ? undefined : plainHost(new URL(advertise).hostname);
  const outer = [host, named].find((one) => one !== undefined && !isLoopback(one));
  if (key !== undefined || outer === undefined) return [];
  return [{ path: ["admin", "key"], message: `is required because ${outer} is not a loopback address` }];
}

function checkApiKeys({ "api-keys": keys }: ConfigTree): Problem[] {
  const problems: Problem[] = [];
  const names = new Set<string>();
  const digests = new Map<string, string>();
  for (const [at, { name, key, "key-sha256": sha256 }] of keys.entries()) {
    const path = ["api-keys", at];
    if (names.has(name)) problems.push({ path: [...path, "name"], message: `${name} is the name of another key` });
    names.add(name);
    if ((key === undefined) === (sha256 === undefined)) {
      problems.push({ path, message: "needs either key or key-sha256" });
      continue;
    }
    const digest = sha256?.toLowerCase() ?? sha256Of(key ?? "").toString("hex");
    const same = digests.get(digest);
    if (same !== undefined) problems.push({ path, message: `has the same key as ${same}` });
    digests.set(digest, same ?? name);
  }
  return problems;
}

function checkEngineTls({ "engine-tls": tls }: ConfigTree): Problem[] {
  const { "cert-file": certFile, "key-file": keyFile } = tls;
  if ((certFile === undefined) === (keyFile === undefined)) return [];
  const missing = certFile === undefined ? "cert-file" : "key-file";
  return [{ path: ["engine-tls", missing], message: "is required because its counterpart is set" }];
}

function checkBreaker({ breaker: { open, "max-open": maxOpen } }: ConfigTree): Problem[] {
  if (open <= maxOpen) return [];
  const message = `${formatDuration(maxOpen)} is less than open, ${formatDuration(open)}`;
  return [{ path: ["breaker", "max-open"], message }];
}

/** Whether there may be a policy of this name beside those of the catalogue. */
type IsPolicy = (name: string) => boolean;

function checkPolicy({ name, seed: _, ...options }: ConfigTree["policy"], path: Path, isPolicy: IsPolicy): Problem[] {
  const catalogue: Readonly<Record<string, readonly string[]>> = policyOptions;
  if (!Object.hasOwn(catalogue, name) && !isPolicy(name)) {
    const advice = didYouMean(name, Object.keys(catalogue));
    const message = `${JSON.stringify(name)} is not ${policyNameExpected}${advice}`;
    return [{ path: [...path, "name"], message }];
  }
  const takes = catalogue[name] ?? [];
  return Object.keys(options)
    .filter((option) => !takes.includes(option))
    .map((option) => ({
      path: [...path, option],
      message: `is not an option of ${name}${takes.length > 0 ? `, which takes ${takes.join(", ")}` : ""}`,
    }));
}

/** Requests wait in the queues of admission, and a name with `*` would let clients invent models that wait. */
function checkHolds({ pools, admission }: ConfigTree): Problem[] {
  return pools.flatMap((pool, at): Problem[] => {
    const path = ["pools", at, "scale-from-zero", "hold"];
    if (pool["scale-from-zero"].hold === 0) return [];
    if (admission.mode === "off") return [{ path, message: "needs admission.mode: on" }];
    const isNamed = pool.models.some((model) => !model.includes("*"));
    return isNamed ? [] : [{ path, message: "needs a model in `models` without *" }];
  });
}

function checkPools({ pools }: ConfigTree, isPolicy: IsPolicy): Problem[] {
  const problems: Problem[] = [];
  const firstWith = new Map<string, number>();
  for (const [at, pool] of pools.entries()) {
    const path = ["pools", at];
    for (const [index, pattern] of pool.models.entries()) {
      const first = firstWith.get(pattern);
      if (first === undefined) firstWith.set(pattern, at);
      else
        problems.push({
          path: [...path, "models", index],
          message: `${pattern} is unreachable: pool ${first} matches it first`,
        });
    }
    if (pool.policy) problems.push(...checkPolicy(pool.policy, [...path, "policy"], isPolicy));
    if (pool["forward-authorization"] && pool["engine-api-key"] !== undefined) {
      problems.push({
        path: [...path, "forward-authorization"],
        message: "cannot be true together with engine-api-key",
      });
    }
  }
  return problems;
}

function checkTokenizers({ tokenizers }: ConfigTree): Problem[] {
  return tokenizers.flatMap(({ mode, path }, at): Problem[] => {
    const needed = mode === "local";
    if (needed === (path !== undefined)) return [];
    const message = needed ? "is required because mode is local" : `is unused because mode is ${mode}`;
    return [{ path: ["tokenizers", at, "path"], message }];
  });
}

function checkKvPools({ "kv-pools": pools, "kv-events": { mode, listen } }: ConfigTree): Problem[] {
  const problems: Problem[] = [];
  const firstWithName = new Map<string, number>();
  const firstWithStream = new Map<string, number>();
  for (const [at, { name, endpoint, replay, topic, mooncake, "key-prefix": keyPrefix }] of pools.entries()) {
    const path = ["kv-pools", at];
    const stream = endpoint === undefined ? undefined : `${endpoint} ${topic}`;
    if (mooncake !== undefined && endpoint !== undefined) {
      problems.push({ path: [...path, "mooncake"], message: "cannot be used with `endpoint`" });
    }
    if (mooncake !== undefined && listen !== undefined) {
      const message = "cannot be used with kv-events.listen: the events of an engine that connects are read once";
      problems.push({ path: [...path, "mooncake"], message });
    }
    if (keyPrefix !== "" && mooncake === undefined) {
      problems.push({ path: [...path, "key-prefix"], message: "needs `mooncake`" });
    }
    const sameName = firstWithName.get(name);
    const sameStream = stream === undefined ? undefined : firstWithStream.get(stream);
    if (sameName !== undefined) {
      problems.push({ path: [...path, "name"], message: `${name} is also the name of pool ${sameName}` });
    }
    if (sameStream !== undefined) {
      const message = `${endpoint} is also the endpoint of pool ${sameStream}, with the same topic`;
      problems.push({ path: [...path, "endpoint"], message });
    }
    if (replay !== undefined && endpoint === undefined) {
      problems.push({ path: [...path, "replay"], message: "needs `endpoint`" });
    }
    firstWithName.set(name, sameName ?? at);
    if (stream !== undefined) firstWithStream.set(stream, sameStream ?? at);
  }
  if (pools.length > 0 && mode === "off") {
    problems.push({ path: ["kv-pools"], message: "are unused because kv-events.mode is off" });
  }
  return problems;
}

/** Rounding error allowed in a sum of shares. */
const shareRounding = 1e-9;

function checkAdmission({ admission }: ConfigTree): Problem[] {
  const problems: Problem[] = [];
  const names = new Set<string>();
  for (const [at, { name }] of admission.classes.entries()) {
    const path = ["admission", "classes", at, "name"];
    if (names.has(name)) problems.push({ path, message: `${name} is the name of another class` });
    names.add(name);
  }
  const usual = admission["default-class"];
  if (!names.has(usual)) {
    problems.push({ path: ["admission", "default-class"], message: `${usual} is not one of ${[...names].join(", ")}` });
  }
  const shares = admission.classes.reduce((sum, { share }) => sum + share, 0);
  if (shares > 1 + shareRounding) {
    problems.push({ path: ["admission", "classes"], message: "have shares that add up to more than 1" });
  }
  // Engines that take the highest number first stop running less urgent work as soon as numbers are far apart.
  if (admission["engine-order"] === "shortest" && admission["engine-priority"] !== "lower-first") {
    problems.push({ path: ["admission", "engine-order"], message: "needs engine-priority: lower-first" });
  }
  return problems;
}

function checkDisaggregation({ disaggregation: split }: ConfigTree): Problem[] {
  if (split["min-tokens"] <= split["max-tokens"]) return [];
  const message = `${split["max-tokens"]} is less than min-tokens, ${split["min-tokens"]}`;
  return [{ path: ["disaggregation", "max-tokens"], message }];
}

/** Longest chain of aliases and splits from a name to a model. */
const maxModelHops = 7;

function checkModels({ models: { aliases, splits } }: ConfigTree): Problem[] {
  const problems: Problem[] = [];
  for (const [name, sides] of Object.entries(splits)) {
    const path = ["models", "splits", name];
    if (Object.hasOwn(aliases, name)) problems.push({ path, message: "is also the name of an alias" });
    if (sides.every(({ weight }) => weight === 0))
      problems.push({ path, message: "has no side with a weight above 0" });
    if (new Set(sides.map(({ model }) => model)).size < sides.length) {
      problems.push({ path, message: "lists a model twice" });
    }
  }
  for (const name of [...Object.keys(aliases), ...Object.keys(splits)]) {
    const kind = Object.hasOwn(splits, name) ? "splits" : "aliases";
    const mistake = followModel(name, aliases, splits);
    if (mistake !== undefined) problems.push({ path: ["models", kind, name], message: mistake });
  }
  return problems;
}

/** Follows all branches from a name, one hop at a time. A split may name itself: that part is the model of that name. */
function followModel(
  name: string,
  aliases: ConfigTree["models"]["aliases"],
  splits: ConfigTree["models"]["splits"],
): string | undefined {
  let frontier = new Set([name]);
  for (let hop = 0; hop <= maxModelHops; hop++) {
    const next = new Set<string>();
    for (const model of frontier) {
      const sides = Object.hasOwn(splits, model) ? splits[model]?.map((side) => side.model) : undefined;
      const alias = Object.hasOwn(aliases, model) ? aliases[model] : undefined;
      for (const side of sides ?? []) if (side !== model) next.add(side);
      if (!sides && alias !== undefined) next.add(alias);
    }
    if (next.has(name)) return "is a cycle";
    if (next.size === 0) return undefined;
    frontier = next;
  }
  return `has more than ${maxModelHops} hops`;
}
