import { randomInt } from "node:crypto";
import { loadConfig, parseEnginesFile } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { engines, temporaryFile } from "../e2e/files.ts";
import { type Program, start } from "../e2e/program.ts";
import { readText } from "./files.ts";

const numbers = [1, 2, 3] as const;
const fileOf = (number: number): string => `examples/three-vms/router-${number}.yaml`;

interface Status {
  readonly ready: boolean;
  readonly mesh: {
    readonly router: string;
    readonly members: readonly { readonly router: string; readonly state: string; readonly isLinked: boolean }[];
    readonly facts: { readonly digest: string };
  };
}

interface Router extends Program {
  readonly url: string;
  readonly adminUrl: string;
  readonly status: () => Promise<Status>;
}

/** Three loopback addresses that nobody else on this machine uses, in place of those of three VMs. */
function addresses(): Readonly<Record<string, string>> {
  const network = `127.${randomInt(64, 250)}.${randomInt(1, 255)}`;
  return Object.fromEntries(numbers.map((number) => [`ROUTER_${number}`, `${network}.${number}`]));
}

async function serve(number: number, env: Readonly<Record<string, string>>, enginesFile: string): Promise<Router> {
  // Clients and operators are served on any free port; the mesh is as the files say.
  const ports = ["--listen-port", "0", "--admin-port", "0", "--engines-file", enginesFile];
  const program = start(["serve", "--config", fileOf(number), ...ports], { env });
  const [, url = "", adminUrl = ""] = await program.until(/serves at (\S+), metrics and admin at (\S+)/);
  const status = async () => (await (await fetch(`${adminUrl}/admin/status`)).json()) as Status;
  return { ...program, url, adminUrl, status };
}

const isWhole = ({ ready, mesh }: Status, others: number): boolean =>
  ready && mesh.members.filter(({ state, isLinked }) => state === "alive" && isLinked).length === others;

const post = (url: string, messages: readonly unknown[]) =>
  fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "tiny", messages, max_tokens: 8 }),
  });

async function ask({ url }: Router, messages: readonly unknown[]) {
  const response = await post(`${url}/v1/chat/completions`, messages);
  const body = (await response.json()) as { readonly choices: readonly { readonly message: unknown }[] };
  return {
    engine: response.headers.get("x-espalier-engine"),
    cachedTokens: Number(response.headers.get("x-espalier-cache-hit-tokens")),
    message: body.choices[0]?.message,
  };
}

/** Waits until a router knows where a conversation is: to ask it for an answer earlier would put it elsewhere as well. */
async function untilKnown({ adminUrl }: Router, messages: readonly unknown[], engine: string | null): Promise<void> {
  const isKnown = async () => {
    const plan = (await (await post(`${adminUrl}/admin/explain?endpoint=chat`, messages)).json()) as {
      readonly choice: { readonly key: string } | null;
      readonly candidates?: readonly { readonly key: string; readonly placement: unknown }[];
    };
    const candidate = plan.candidates?.find(({ key }) => key === engine);
    return candidate !== undefined && candidate.placement !== null && plan.choice?.key === engine;
  };
  await waitFor(isKnown, { what: `the conversation at ${engine}`, deadlineMs: 20_000 });
}

test("the three files make one mesh on one machine: a conversation goes on at another router where it began", async () => {
  const urls = await engines({ engines: 4 });
  const enginesFile = temporaryFile("engines.yaml", urls.map((url) => `- ${url}\n`).join(""));
  const env = addresses();
  const routers = await Promise.all(numbers.map((number) => serve(number, env, enginesFile)));
  const whole = async () => (await Promise.all(routers.map(({ status }) => status()))).every((one) => isWhole(one, 2));
  await waitFor(whole, { what: "three routers that see each other", deadlineMs: 30_000 });
  const names = await Promise.all(routers.map(async ({ status }) => (await status()).mesh.router));
  expect(names).toEqual(["router-1", "router-2", "router-3"]);

  const messages: unknown[] = [{ role: "user", content: `Tell me about vines. ${"They climb. ".repeat(60)}` }];
  const first = await ask(routers[0]!, messages);
  messages.push(first.message, { role: "user", content: "And about walls." });
  for (const router of [routers[1]!, routers[2]!]) {
    await untilKnown(router, messages, first.engine);
    const { engine, cachedTokens } = await ask(router, messages);
    expect([engine, cachedTokens > 0]).toEqual([first.engine, true]);
  }

  routers[2]!.kill("SIGINT");
  expect((await routers[2]!.ended).code).toBe(0);
  const left = async () => {
    const [one, two] = await Promise.all([routers[0]!.status(), routers[1]!.status()]);
    return isWhole(one, 1) && isWhole(two, 1);
  };
  await waitFor(left, { what: "two routers that see each other", deadlineMs: 10_000 });
  expect((await ask(routers[1]!, messages)).engine).toBe(first.engine);
});

test("as they stand they need nothing, and differ in their own number only", () => {
  const [one, ...others] = numbers.map((number) => readText(fileOf(number)));
  for (const [at, other] of others.entries()) {
    const number = at + 2;
    const expected = one!
      .replace("# Router 1 of", `# Router ${number} of`)
      .replaceAll('{ host: "${ROUTER_1:-127.0.0.11}"', `{ host: "\${ROUTER_${number}:-127.0.0.1${number}}"`)
      .replace('  host: "${ROUTER_1:-127.0.0.11}"', `  host: "\${ROUTER_${number}:-127.0.0.1${number}}"`)
      .replace("router-id: router-1", `router-id: router-${number}`);
    expect(other).toBe(expected);
  }
  for (const number of numbers) {
    const { listen, admin, mesh } = loadConfig({ file: { path: fileOf(number), text: readText(fileOf(number)) } });
    expect([listen, admin, mesh].map(({ host, port }) => `${host}:${port}`)).toEqual([
      `127.0.0.1${number}:8080`,
      `127.0.0.1${number}:9090`,
      `127.0.0.1${number}:7946`,
    ]);
  }
  const path = "examples/three-vms/engines.yaml";
  expect(parseEnginesFile(readText(path), path).map(({ url }) => url)).toEqual(
    [1, 2, 3, 4].map((number) => `http://127.0.0.1:800${number}`),
  );
});

test("with the variables of vm.env they are those of three VMs, and refuse to be without their secrets", () => {
  const lines = readText("examples/three-vms/vm.env").split("\n");
  const env = Object.fromEntries(
    lines.filter((line) => /^\w+=/.test(line)).map((line) => line.split("=", 2) as [string, string]),
  );
  const file = { path: fileOf(2), text: readText(fileOf(2)) };
  expect(() => loadConfig({ file, env })).toThrow(
    /admin\.key: is required.*\n.*mesh\.secret: or mesh\.tls is required/s,
  );
  const secrets = {
    ESPALIER_MESH_SECRET: "0".repeat(64),
    ESPALIER_ADMIN_KEY: "1".repeat(64),
    ESPALIER_PREFIX_SEED: "2".repeat(32),
  };
  const { listen, mesh, enginesFile, prefix } = loadConfig({ file, env: { ...env, ...secrets } });
  expect(listen).toMatchObject({ host: "10.0.0.12", port: 8080 });
  expect(mesh).toMatchObject({ host: "10.0.0.12", port: 7946, cluster: "three-vms" });
  expect(mesh.seeds).toHaveLength(3);
  expect([enginesFile, prefix.seed]).toEqual(["/etc/espalier/engines.yaml", "2".repeat(32)]);
});
