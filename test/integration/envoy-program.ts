import { installedEnvoy } from "espalier-router";

/**
 * The Envoy of this machine: that of `ENVOY_BIN`, or the one that `npm run envoy:install` left. If there is none, one line says
 * that tests did not run.
 *
 * @param what the tests that need it
 */
export function envoyProgram(what: string): string | undefined {
  const program = process.env.ENVOY_BIN ?? installedEnvoy(process.env.XDG_CACHE_HOME);
  if (program === undefined) {
    process.stderr.write(`NOT RUN: ${what}; Envoy is not installed (npm run envoy:install)\n`);
  }
  return program;
}
