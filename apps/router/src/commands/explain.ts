import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import { describeExplanation, type ExplainReport } from "../output/explain-report.ts";
import { UsageError } from "../output/usage-error.ts";
import { writeJson, writeResult } from "../output/write.ts";
import { askAdmin } from "./admin-client.ts";
import { addCommand } from "./command-list.ts";

interface ExplainFlags {
  readonly url: string;
  readonly file: string;
  readonly endpoint?: string;
  readonly header: readonly string[];
  readonly key?: string;
  readonly json?: boolean;
}

const standardInput = 0;
/** What belongs to the question, not to the request that it is about. */
const ownHeaders = ["authorization", "connection", "content-length", "content-type", "host", "transfer-encoding"];

export function registerExplain(program: Command): void {
  addCommand(program, "explain")
    .description(
      "Has a running router plan a request as if a client had sent it: every candidate with its cost and each term of it, the " +
        "load, what is known of the prompt there, by which router and since when, and who is left out and why. The request " +
        "is sent to no engine, and no later decision is another one for it.",
    )
    .addOption(
      new Option("--url <url>", "admin address of the router")
        .default("http://127.0.0.1:9090")
        .env("ESPALIER_ADMIN_URL"),
    )
    .requiredOption("--file <file>", "with the request's body, as a client would send it; - for standard input")
    .option("--endpoint <name>", "chat, completions, messages, responses, or a path; guessed of the body unless given")
    .option(
      "--header <name: value>",
      "a header of the request, such as `x-session-id: 7`; may be repeated",
      (given: string, all: readonly string[]) => [...all, given],
      [] as readonly string[],
    )
    .addOption(new Option("--key <key>", "admin key").env("ESPALIER_ADMIN_KEY"))
    .option("--json", "print JSON")
    .action(explain);
}

async function explain({ url, key, file, endpoint, header, json }: ExplainFlags): Promise<void> {
  const headers = Object.fromEntries(header.map(readHeader));
  const body = { method: "POST", json: readRequest(file), headers } as const;
  const query = endpoint === undefined ? "" : `?endpoint=${encodeURIComponent(endpoint)}`;
  const options = { admin: url, flag: "--url", ...(key === undefined ? {} : { key }) };
  const report = await askAdmin<ExplainReport>(options, `/admin/explain${query}`, body);
  if (json) writeJson(report);
  else writeResult(describeExplanation(report));
  if (report.choice === null) process.exitCode = 1;
}

/** @throws UsageError for a file that cannot be read */
function readRequest(file: string): string {
  try {
    return readFileSync(file === "-" ? standardInput : file, "utf8");
  } catch (error) {
    throw new UsageError(`--file cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** @throws UsageError for text that is no header, and for headers that are not the request's own */
function readHeader(text: string): readonly [name: string, value: string] {
  const [, name = "", value = ""] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e]*)$/.exec(text) ?? [];
  if (name === "") throw new UsageError(`--header must be NAME: VALUE, not ${JSON.stringify(text)}`);
  if (ownHeaders.includes(name.toLowerCase())) throw new UsageError(`--header cannot set ${name.toLowerCase()}`);
  return [name.toLowerCase(), value];
}
