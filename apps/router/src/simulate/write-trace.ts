import { closeSync, openSync, writeSync } from "node:fs";
import { enginePresets } from "@espalier/engine-model";
import { recordTrace } from "@espalier/simulator";
import { bailianLine, maxTraceRequests } from "@espalier/workload";
import { UsageError } from "../output/usage-error.ts";
import { writeResult } from "../output/write.ts";
import { findVariant } from "./run-plan.ts";
import { findScenario } from "./simulated-scenario.ts";

export interface WriteTraceCommand {
  readonly kind: "write-trace";
  readonly scenario: string;
  readonly variant: string | undefined;
  readonly file: string;
  readonly requests: number | undefined;
  readonly durationS: number | undefined;
}

/** Of the draws: those of the first run of every command. */
const seed = 1;

/**
 * Writes what the clients of a scenario ask, so that the same can be asked over HTTP.
 *
 * @throws UsageError for a scenario whose requests are not its own, or depend on answers, and for too many of them
 */
export function writeTrace({
  scenario: name,
  variant: variantName,
  file,
  requests,
  durationS,
}: WriteTraceCommand): void {
  const scenario = findScenario(name);
  const variant = variantName === undefined ? undefined : findVariant(scenario, variantName);
  if (scenario.trace !== undefined)
    throw new UsageError(`--write-trace: ${name} replays a trace, which is one already`);
  if (!scenario.isOpenLoop)
    throw new UsageError(`--write-trace: ${name} is a closed loop: when its requests come depends on the fleet`);
  const { engines = scenario.fleet.engines, preset = scenario.fleet.preset, scale = 1 } = variant ?? {};
  const { blockCount, blockSize } = enginePresets[preset].parameters;
  const workload = (variant?.createWorkload ?? scenario.createWorkload)({
    ...{ seed, engines, kvTokens: blockCount * blockSize, scale },
    ...(requests === undefined ? {} : { requests }),
    ...(durationS === undefined ? {} : { durationS }),
  });
  if (workload.expectedRequests > maxTraceRequests)
    throw new UsageError(`--write-trace: ${workload.expectedRequests} requests are more than ${maxTraceRequests}`);
  const out = openSync(file, "w");
  let rows = 0;
  try {
    recordTrace(workload, (row) => {
      writeSync(out, `${bailianLine(row)}\n`);
      rows++;
    });
  } finally {
    closeSync(out);
  }
  writeResult(`${rows} requests in ${file}; espalier replay --trace ${file} --engines ${engines} --preset ${preset}`);
}
