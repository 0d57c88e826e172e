import { onTestFinished } from "vitest";
import { type EnvoyOptions, envoyConfig, standardEnvoyLimits } from "../../src/envoy/envoy-config.ts";
import { installedEnvoy } from "../../src/envoy/install-envoy.ts";
import { type StartEnvoyOptions, startEnvoy } from "../../src/envoy/start-envoy.ts";

/** The Envoy of this machine. If there is none, one line says that tests did not run. */
export function envoyProgram(what: string): string | undefined {
  const program = process.env.ENVOY_BIN ?? installedEnvoy(process.env.XDG_CACHE_HOME);
  if (program === undefined) {
    process.stderr.write(`NOT RUN: ${what}; Envoy is not installed (npm run envoy:install)\n`);
  }
  return program;
}

/** Three pickers and three engines at ports where nothing listens. */
export function envoyOptions(changed: Partial<EnvoyOptions> = {}): EnvoyOptions {
  const host = "127.0.0.1";
  return {
    listen: { host, port: 0 },
    admin: { host, port: 0 },
    pickers: [1, 2, 3].map((port) => ({ host, port, healthPort: port + 10 })),
    engines: [21, 22, 23].map((port) => ({ host, port })),
    requestBody: "full-duplex",
    answersThroughPicker: false,
    limits: standardEnvoyLimits,
    ...changed,
  };
}

/** An Envoy that ends with the test. */
export async function temporaryEnvoy(program: string, options: Partial<StartEnvoyOptions> = {}) {
  const envoy = await startEnvoy({ program, config: envoyConfig(envoyOptions()), threads: 1, ...options });
  onTestFinished(() => envoy.stop());
  return envoy;
}
