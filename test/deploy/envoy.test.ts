import { spawnSync } from "node:child_process";
import { loadConfig } from "@espalier/server";
import { type EnvoyOptions, envoyConfig, standardEnvoyLimits } from "espalier-router";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { envoyProgram } from "../integration/envoy-program.ts";
import { readText, readYaml, root } from "./files.ts";

const file = "deploy/envoy/envoy.yaml";

/** Those of examples/three-vms. */
const routers = [11, 12, 13].map((number) => `127.0.0.${number}`);
const engines = readYaml<readonly string[]>("examples/three-vms/engines.yaml")[0]!;

const options: EnvoyOptions = {
  listen: { host: "0.0.0.0", port: 10_000 },
  admin: { host: "127.0.0.1", port: 9901 },
  pickers: routers.map((host) => ({ host, port: 9002, healthPort: 9003 })),
  engines: engines.map((url) => ({ host: new URL(url).hostname, port: Number(new URL(url).port) })),
  requestBody: "full-duplex",
  answersThroughPicker: true,
  limits: standardEnvoyLimits,
};

test("the file that is shipped is what tests and the demo run, before the routers and engines of examples/three-vms", () => {
  const [shipped] = readYaml(file);
  expect(shipped).toEqual(envoyConfig(options));
  for (const [index, host] of routers.entries())
    expect(readText(`examples/three-vms/router-${index + 1}.yaml`)).toContain(`:-${host}}`);
});

test("the README's lines for TLS are those that tests run", () => {
  const pickerTls = {
    caFile: "/etc/envoy/pickers-ca.pem",
    name: "pickers.internal",
    own: { certFile: "/etc/envoy/envoy.pem", keyFile: "/etc/envoy/envoy.key" },
  };
  const [cluster] = envoyConfig({ ...options, pickerTls }).static_resources.clusters;
  const [, lines = ""] = /^```yaml\n(.*?)^```$/ms.exec(readText("deploy/envoy/README.md")) ?? [];
  expect(cluster).toMatchObject(parse(lines) as object);
  expect(JSON.stringify(cluster)).toContain('"transport_socket_match_criteria":{"plainText":true}');
});

test("its bounds are those that routers have", () => {
  const { limits, timeouts, endpointPicker } = loadConfig({
    env: {},
    flags: { "--engine": ["http://127.0.0.1:8001"], "--ext-proc-port": "9002" },
  });
  const { maxBodyBytes, idleSeconds, messageSeconds } = standardEnvoyLimits;
  expect([maxBodyBytes, idleSeconds * 1_000]).toEqual([limits.maxBodyBytes, timeouts.firstByteMs]);
  expect(messageSeconds * 1_000).toBe(2 * endpointPicker!.answerWithinMs);
});

const program = envoyProgram("deploy/envoy/envoy.yaml in Envoy");
test.skipIf(program === undefined)("Envoy takes it", () => {
  const check = spawnSync(program!, ["--mode", "validate", "--log-level", "warning", "--config-path", root + file]);
  expect(`${check.stdout}${check.stderr}`).toBe(`configuration '${root}${file}' OK\n`);
});
