import { type HttpClient, layOutTable } from "@espalier/core";
import { loadTokenizerFiles, type VerifyRow } from "@espalier/tokenizer";
import type { Command } from "commander";
import { withHttpClient } from "../cli/admin-client.ts";
import { readEndpointUrl } from "../cli/read-flags.ts";
import { compareTokenizer, readJson } from "../doctor/compare-tokenizer.ts";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

interface VerifyFlags {
  readonly model: string;
  readonly engine: string;
  readonly name?: string;
  readonly json?: boolean;
}

/** Maximum differences in the table. */
const listedRows = 20;

export function registerVerifyTokenizer(program: Command): void {
  addCommand(program, "verify-tokenizer")
    .description(
      "Tokenizes difficult texts and chats on an engine and with the model's files, and compares the tokens. " +
        "Exits with 1 if one differs.",
    )
    .requiredOption("--model <folder>", "folder with tokenizer.json, tokenizer_config.json and chat template")
    .requiredOption("--engine <url>", "engine that serves the model")
    .option("--name <model>", "model name at the engine (default: the first listed)")
    .option("--json", "print JSON instead of a table")
    .action(async (flags: VerifyFlags) => verify(flags));
}

async function verify(flags: VerifyFlags): Promise<void> {
  const url = readEndpointUrl(flags.engine, "--engine");
  const files = await loadTokenizerFiles(flags.model);
  const { rows, hasTemplate } = await withHttpClient(async (http) => {
    const model = flags.name ?? (await firstModel(http, url));
    return compareTokenizer({ http, url, model, files, note: writeNote });
  });
  const different = rows.filter(({ ok }) => !ok);
  if (flags.json) writeJson({ name: "verify-tokenizer", cases: rows.length, different: different.length, rows });
  else writeResult(describe(rows, different, hasTemplate));
  if (different.length > 0) process.exitCode = 1;
}

async function firstModel(http: HttpClient, url: string): Promise<string> {
  // Another program may listen at the address, so its answer may have any shape.
  const { data } = ((await readJson(http, `${url}/v1/models`)) ?? {}) as { data?: readonly ({ id: unknown } | null)[] };
  const id = Array.isArray(data) ? data[0]?.id : undefined;
  if (typeof id === "string") return id;
  throw new Error(`${url}/v1/models names no model; give --name`);
}

function describe(rows: readonly VerifyRow[], different: readonly VerifyRow[], hasTemplate: boolean): string {
  const compared = `${rows.length - different.length} of ${rows.length} prompts match`;
  const template = hasTemplate ? "" : "\nno chat template found: chats were not compared";
  if (different.length === 0) return compared + template;
  const table = layOutTable(different.slice(0, listedRows), [
    { header: "prompt", value: (row) => row.case },
    { header: "first difference at", value: (row) => row.firstDifference?.at },
    { header: "ours", value: (row) => row.firstDifference?.ours },
    { header: "engine's", value: (row) => row.firstDifference?.engine },
    { header: "why", value: (row) => row.error },
  ]);
  const more = different.length > listedRows ? `\nand ${different.length - listedRows} more` : "";
  return `${compared}${template}\n${table}${more}`;
}
