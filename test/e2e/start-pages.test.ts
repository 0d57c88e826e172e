import { readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { temporaryFile } from "./files.ts";
import { untilIdle } from "./idle.ts";
import { type Program, run, start } from "./program.ts";

/**
 * Start pages, run as they stand: their files are written, their commands run one after the other, their curls sent. Only
 * the ports are others, and simulated engines that behave as a release does stand for those that need a GPU.
 */
const twoEngines = "start/two-engines";
const simulator = "llm-d's simulator";
const engines = ["--engines", "2", "--model", "my-model"];
const pages: readonly Page[] = [
  { page: twoEngines, without: simulator, release: "vllm-0.32.0" },
  { page: "guides/engines", section: "SGLang", release: "sglang-0.5.23", configuredBy: twoEngines },
  { page: twoEngines, section: simulator, release: "vllm-0.32.0", engines },
  { page: twoEngines, section: simulator, release: "llama.cpp-00efb3e", engines },
  { page: twoEngines, section: simulator, release: "trtllm-00057725", engines },
];

interface Page {
  readonly page: string;
  /** Only this section of it, or all but this one. */
  readonly section?: string;
  readonly without?: string;
  readonly release: string;
  readonly configuredBy?: string;
  readonly engines?: readonly string[];
}

/** The page's text, or that of one of its sections. */
function textOf(
  page: string,
  { section, without }: Partial<Record<"section" | "without", string | undefined>> = {},
): string {
  const parts = readFileSync(new URL(`../../docs/${page}.md`, import.meta.url), "utf8").split(/^(?=## )/m);
  const isNamed = (part: string, name: string | undefined): boolean => part.startsWith(`## ${name}\n`);
  const wanted = parts.filter((part) => (section ? isNamed(part, section) : !isNamed(part, without)));
  expect(wanted).not.toEqual([]);
  return wanted.join("");
}
const blocksOf = (text: string, language: string) =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map(([, block = ""]) => block);
const commandsOf = (text: string) =>
  blocksOf(text, "sh").flatMap((block) => block.replaceAll("\\\n", " ").trim().split("\n"));
const wordsOf = (command: string) =>
  [...command.replace(/\s#.*/, "").matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => quoted ?? word!);
const onFreePorts = (text: string) => text.replaceAll(/\b(port:?) \d+/g, "$1 0");

interface Router {
  readonly program: Program;
  readonly url: string;
  readonly adminUrl: string;
}

test.for(pages)(
  "the page $page holds with engines that do all that $release does",
  async ({ page, section, without, release, configuredBy = page, engines }) => {
    const text = textOf(page, { section, without });
    const written = commandsOf(text).find((line) => line.includes("engine-sim")) ?? "";
    const simulated = engines ?? wordsOf(onFreePorts(written)).slice(4);
    const script = "apps/engine-sim/bin/engine-sim.mjs";
    const sim = start([...simulated, "--behaviour", release, "--json"], { script });
    const [, listed = ""] = await sim.until(/^(\{"engines".*)\n/);
    const urls = (JSON.parse(listed) as { engines: { url: string }[] }).engines.map(({ url }) => url);
    const ids = urls.map((url) => new URL(url).host);
    const routers: Router[] = [];

    /** What the page says, at the addresses that the programs have here. */
    const here = (text: string): string =>
      onFreePorts(text)
        .replaceAll("127.0.0.1:8000", ids[0]!)
        .replaceAll("127.0.0.1:8001", ids[1]!)
        .replaceAll("http://127.0.0.1:8080", () => routers[0]!.url)
        .replaceAll("http://127.0.0.1:8081", () => routers[1]!.url)
        .replaceAll("127.0.0.1:7946", () => /"meshAddress":"([^"]+)"/.exec(routers[0]!.program.stderr())![1]!);
    const [yaml = ""] = blocksOf(textOf(configuredBy), "yaml");
    const [json] = blocksOf(text, "json");
    const files: Record<string, string> = { "espalier.yaml": temporaryFile("espalier.yaml", here(yaml)) };
    // The reader writes it into the root of a clone.
    symlinkSync(
      fileURLToPath(new URL("../../packages", import.meta.url)),
      join(dirname(files["espalier.yaml"]!), "packages"),
    );
    if (json) files["request.json"] = temporaryFile("request.json", json);
    const env = { ESPALIER_LISTEN_PORT: "0", ESPALIER_ADMIN_PORT: "0" };

    const serve = async (args: readonly string[]): Promise<void> => {
      const program = start(args, { env });
      const [, url = "", adminUrl = ""] = await program.until(/serves at (\S+), metrics and admin at (\S+)/);
      routers.push({ program, url, adminUrl });
      await waitFor(async () => (await fetch(`${url}/readyz`)).ok, { what: "a ready router", deadlineMs: 10_000 });
    };
    const runsWell = async (args: readonly string[]): Promise<void> => {
      const adminUrl = routers.at(-1)?.adminUrl;
      const asked = ["doctor", "verify-tokenizer"].includes(args[0]!) ? args : [...args, "--admin", adminUrl!];
      let last = "";
      const isWell = async (): Promise<boolean> => {
        const { code, stdout, stderr } = await run(asked, { env });
        last = stdout + stderr;
        const complaint = complaints[args[0]!];
        return code === 0 && !(complaint?.test(stdout) ?? false);
      };
      await waitFor(isWell, { what: `\`espalier ${args.join(" ")}\` without a complaint`, deadlineMs: 20_000 }).catch(
        (error: unknown) => expect.unreachable(`${error}:\n${last}`),
      );
    };
    const curled: Answer[] = [];
    const curl = async (words: readonly string[]): Promise<void> => {
      const data = words[words.indexOf("-d") + 1]!;
      const body = data.startsWith("@") ? readFileSync(files[data.slice(1)]!, "utf8") : data;
      curled.push(await post(words.find((word) => word.startsWith("http"))!, body));
      await untilIdle(routers.map(({ adminUrl }) => adminUrl));
    };

    for (const command of commandsOf(text)) {
      const args = wordsOf(here(command)).map((word) => files[word] ?? word);
      if (args[0] === "curl") await curl(args);
      if (args[0] !== "npx" || args[1] !== "espalier") continue;
      await (args[2] === "serve" ? serve(args.slice(2)) : runsWell(args.slice(2)));
    }
    expect(curled.map(({ status }) => status)).toEqual(curled.map(() => 200));
    // What was asked twice, the second time at another router, is where the first router had it computed.
    const [computed, found] = curled;
    if (computed && found) {
      const { prompt_tokens } = (JSON.parse(found.text) as { usage: { prompt_tokens: number } }).usage;
      const blocks = Math.floor(prompt_tokens / 16) * 16;
      expect([computed.cachedTokens, found.cachedTokens, found.engine]).toEqual([0, blocks, computed.engine]);
    }

    const chat = (body: object) => post(`${routers[0]!.url}/v1/chat/completions`, JSON.stringify(body));
    const model = engines ? "my-model" : "sim-model";
    // Engines within 8 ms tie, and the one with fewer requests wins: this prompt takes longer than that to compute.
    const first = { role: "user", content: "Which walls are warm enough for a pear in a cold country? ".repeat(160) };
    const whole = await chat({ model, max_tokens: 20, messages: [first] });
    expect(whole.status).toBe(200);
    const said = (JSON.parse(whole.text) as { choices: { message: object }[] }).choices[0]!.message;
    const messages = [first, said, { role: "user", content: "And how far should the wires be from it?" }];
    const streamed = await chat({ model, max_tokens: 20, stream: true, messages });
    expect(streamed).toMatchObject({ status: 200, text: expect.stringMatching(/data: \[DONE\]\n\n$/) });
    expect(streamed.engine).toBe(whole.engine);
    expect(streamed.cachedTokens).toBeGreaterThan(64);
    for (const name of ["status", "engines", "feeds"]) await runsWell([name]);
    for (const { program } of routers) {
      const { stderr } = program;
      const serious = stderr().match(/^.*"level":"(?:warn|error)".*$/gm) ?? [];
      expect(serious).toEqual([]);
    }
  },
);

/** What a command prints where something is wrong. */
const complaints: Readonly<Record<string, RegExp>> = {
  doctor: /✗/,
  // Without a number of running requests, metrics are unread.
  engines: /starting|unreachable|down|open|asleep|failed|up +closed +\d+( +\S+){3} +-/,
  feeds: /stale|replaying|partial|off/,
};

interface Answer {
  readonly status: number;
  readonly engine: string | null;
  readonly cachedTokens: number;
  readonly text: string;
}

async function post(url: string, body: string): Promise<Answer> {
  const answer = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body });
  return {
    status: answer.status,
    engine: answer.headers.get("x-espalier-engine"),
    cachedTokens: Number(answer.headers.get("x-espalier-cache-hit-tokens")),
    text: await answer.text(),
  };
}
