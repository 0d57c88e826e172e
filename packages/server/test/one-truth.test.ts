import { defaultSessionKeyLadder } from "@espalier/api";
import { defaultFleetOptions, defaultProxyOptions } from "@espalier/engines";
import { createPolicy, policyCatalogue, policyNames } from "@espalier/policies";
import { expect, test } from "vitest";
import { flagCatalogue, loadConfig } from "../src/config/index.ts";
import { readEngineTls } from "../src/lifecycle/certificates.ts";

/*
 * Features do not import features, so some facts stand in the schema of the configuration and in the package that they
 * are about. Here they are compared.
 */

const standard = loadConfig({});

test("the configuration knows every policy, and no other", () => {
  for (const name of policyNames) expect(loadConfig({ flags: { "--policy": name } }).policy.name).toBe(name);
  expect(() => loadConfig({ flags: { "--policy": "no_such_policy" } })).toThrow(/no_such_policy/);
});

test("the configuration takes every option of every policy, and the policies take what it lets through", () => {
  for (const name of policyNames) {
    for (const option of policyCatalogue[name].options) {
      const value = option.default;
      const text = `policy: { name: ${name}, ${option.name}: ${value} }`;
      const { policy } = loadConfig({ file: { path: "espalier.yaml", text } });
      expect(policy.options, `${name} ${option.name}`).toEqual({ [option.name]: value });
      expect(createPolicy(policy.name, policy.options).name).toBe(name);
    }
  }
});

test("the default session keys are the same", () => {
  expect(standard.sessionKey).toEqual(defaultSessionKeyLadder);
});

test("the defaults of the fleet are those of the configuration", () => {
  const { health, breaker } = standard;
  const { intervalMs, ...scrape } = standard.scrape;
  expect(intervalMs).toBeUndefined();
  expect(defaultFleetOptions.health).toMatchObject(health);
  expect(defaultFleetOptions.scrape).toMatchObject(scrape);
  expect(defaultFleetOptions.breaker).toEqual(breaker);
});

test("the defaults of the proxy are those of the configuration", () => {
  const { tls: _, ...options } = defaultProxyOptions;
  expect({ ...standard.timeouts, ...standard.limits }).toMatchObject(options);
  expect(readEngineTls(standard.engineTls)).toEqual({ rejectUnauthorized: true });
});

test("every section of the configuration can be set from outside, secrets in lists aside", () => {
  const flags = flagCatalogue.map(({ flag }) => flag);
  for (const flag of ["--engine", "--policy", "--listen-port", "--admin-key", "--timeouts-idle", "--log-level"]) {
    expect(flags).toContain(flag);
  }
});
