import { convergenceSuite } from "./suites/convergence.ts";
import { endpointPickerSuite } from "./suites/endpoint-picker.ts";
import { eventsSuite } from "./suites/events.ts";
import { failuresSuite } from "./suites/failures.ts";
import { hashSuite } from "./suites/hash.ts";
import { joinSuite } from "./suites/join.ts";
import { limitsSuite } from "./suites/limits.ts";
import { linksSuite } from "./suites/links.ts";
import { loadGeneratorsSuite } from "./suites/load-generators.ts";
import { peersSuite } from "./suites/peers.ts";
import { prefixIndexSuite } from "./suites/prefix-index.ts";
import { proxySuite } from "./suites/proxy.ts";
import { replicationSuite } from "./suites/replication.ts";
import { routersSuite } from "./suites/routers.ts";
import { scoringSuite } from "./suites/scoring.ts";
import { soakSuite } from "./suites/soak.ts";
import { tokenizerSuite } from "./suites/tokenizer.ts";
import { traceHttpSuite } from "./suites/trace-http.ts";
import { twoTurnSuite } from "./suites/two-turn.ts";
import type { Suite } from "./support/suite.ts";
import { UsageError } from "./support/usage-error.ts";

/** Where a command writes: results to one stream, everything else to the other. */
export interface CommandOutput {
  readonly out: (text: string) => void;
  readonly notes: (text: string) => void;
}

const suites: readonly Suite[] = [
  hashSuite,
  prefixIndexSuite,
  scoringSuite,
  tokenizerSuite,
  eventsSuite,
  proxySuite,
  peersSuite,
  endpointPickerSuite,
  loadGeneratorsSuite,
  replicationSuite,
  linksSuite,
  convergenceSuite,
  joinSuite,
  twoTurnSuite,
  traceHttpSuite,
  routersSuite,
  soakSuite,
  failuresSuite,
  limitsSuite,
];

const exitDone = 0;
const exitFailure = 1;
const exitUsage = 2;

/**
 * Runs `NAME [--json] [options]`.
 *
 * @returns the exit code: 0 done, 1 something failed, 2 wrong usage; a slow machine is no failure
 */
export async function runCommand(args: readonly string[], { out, notes }: CommandOutput): Promise<number> {
  const [name, ...rest] = args;
  const suite = suites.find((candidate) => candidate.name === name);
  if (!suite) {
    const asked = name === "--help" || name === "-h";
    if (!asked) notes(name === undefined ? "Name a benchmark.\n" : `Unknown benchmark ${JSON.stringify(name)}.\n`);
    (asked ? out : notes)(usage());
    return asked ? exitDone : exitUsage;
  }
  if (rest.includes("--help") || rest.includes("-h")) {
    out(suite.help);
    return exitDone;
  }
  const json = rest.includes("--json");
  const own = rest.filter((argument) => argument !== "--json");
  try {
    const { report, table, failure } = await suite.run(own, (line) => notes(`${suite.name}: ${line}\n`));
    out(json ? `${JSON.stringify(report, undefined, 2)}\n` : table);
    if (failure === undefined) return exitDone;
    notes(`error: ${failure}\n`);
    return exitFailure;
  } catch (thrown) {
    const isUsage = thrown instanceof UsageError || isArgumentError(thrown);
    notes(`error: ${thrown instanceof Error ? thrown.message : String(thrown)}\n${isUsage ? suite.help : ""}`);
    return isUsage ? exitUsage : exitFailure;
  }
}

function usage(): string {
  const list = suites.map(({ name, summary }) => `  ${name}  ${summary}\n`).join("");
  return `Usage: npm run bench -- NAME [--json] [options]\n\n${list}\n\`npm run bench -- NAME --help\` says more.\n`;
}

/** Whether `parseArgs` rejected the arguments. */
function isArgumentError(thrown: unknown): boolean {
  return thrown instanceof Error && "code" in thrown && String(thrown.code).startsWith("ERR_PARSE_ARGS_");
}
