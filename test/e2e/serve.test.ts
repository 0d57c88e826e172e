import { fork } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { getPriority } from "node:os";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { engines, temporaryFile } from "./files.ts";
import { childrenOf, type Program, run, start, untilGone } from "./program.ts";

interface Serving extends Program {
  readonly url: string;
  readonly adminUrl: string;
}

/** Starts `espalier serve` on free ports and waits until it can use its engines. */
async function serve(engineUrls: readonly string[], ...args: string[]): Promise<Serving> {
  const flags = [...engineUrls.flatMap((url) => ["--engine", url]), "--listen-port", "0", "--admin-port", "0", ...args];
  const program = start(["serve", ...flags]);
  const [, url = "", adminUrl = ""] = await program.until(/serves at (\S+), metrics and admin at (\S+)/);
  const usable = async () => {
    const status = (await (await fetch(`${adminUrl}/admin/status`)).json()) as { usableEngines: number };
    return status.usableEngines === engineUrls.length;
  };
  if (engineUrls.length > 0) await waitFor(usable, { what: "usable engines" });
  return { ...program, url, adminUrl };
}

/** While V8 compiled a fresh router, its threads took turns with the event loop on a single core: requests waited up to 0.1 s. */
test.runIf(process.platform === "linux")("threads of V8 have less priority than the event loop", async () => {
  const { pid } = await serve([]);
  const threads = readdirSync(`/proc/${pid}/task`).filter((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/comm`, "latin1").includes("V8Worker"),
  );
  expect(threads.length).toBeGreaterThan(0);
  const own = getPriority(pid);
  for (const thread of threads) expect(getPriority(Number(thread))).toBe(Math.min(19, own + 5));
});

interface Stream {
  readonly text: () => string;
  /** Whether it came to its end, as opposed to being cut. */
  readonly whole: Promise<boolean>;
}

/** Opens a streamed answer and waits for its first bytes. */
async function stream(url: string, tokens: number): Promise<Stream> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "tiny", prompt: "hello", max_tokens: tokens, stream: true }),
  });
  expect(response.status).toBe(200);
  let text = "";
  const read = async (): Promise<boolean> => {
    try {
      for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) text += chunk;
    } catch {
      return false;
    }
    return text.endsWith("data: [DONE]\n\n");
  };
  const whole = read();
  await waitFor(() => text !== "", { what: "first bytes" });
  return { text: () => text, whole };
}

const isRefused = async (url: string): Promise<boolean> => {
  try {
    await fetch(url);
    return false;
  } catch {
    return true;
  }
};

test("a running router tells how it is, lists its engines, and takes one out for a while", async () => {
  const urls = await engines({ engines: 2 });
  const router = await serve(urls);
  const [one = "", other = ""] = urls.map((url) => new URL(url).host);
  const admin = ["--admin", router.adminUrl];

  const [status, json, table] = await Promise.all([
    run(["status", ...admin]),
    run(["status", "--json"], { env: { ESPALIER_ADMIN_URL: router.adminUrl } }),
    run(["engines", ...admin]),
  ]);
  expect(status).toMatchObject({ code: 0, stderr: "" });
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly version: string };
  const [head, settings, ...lines] = status.stdout.split("\n");
  expect([head, ...lines]).toEqual([
    "ready",
    "engines   2 of 2 usable",
    "models    tiny",
    "in flight 0",
    "requests  0 answered, 0 refused, 0 failed, 0 cut, 0 cancelled by their clients",
    "",
  ]);
  expect(settings).toMatch(new RegExp(`^version   ${version}, settings [0-9a-f]{8}$`));
  expect(JSON.parse(json.stdout)).toMatchObject({
    ready: true,
    reasons: [],
    engines: 2,
    usableEngines: 2,
    inFlight: 0,
  });
  const [header, ...rows] = table.stdout.trimEnd().split("\n");
  expect(header).toMatch(
    /^id +state +breaker +in flight +oldest wait \(s\) +ttft \(ms\) +tpot \(ms\) +running +waiting +kv use \(%\) +role +network \(ms\) +models +why$/,
  );
  expect(rows.map((row) => row.split(/ {2,}/).slice(0, 3))).toEqual([
    [one, "up", "closed"],
    [other, "up", "closed"],
  ]);

  const [drained, last] = await Promise.all([
    run(["engines", "drain", one, "--json", ...admin]),
    run(["engines", "drain", other, ...admin]),
  ]);
  expect(JSON.parse(drained.stdout)).toMatchObject({ id: one, draining: true });
  expect(last.stdout).toContain("up, draining");
  const [notReady, listed, unknown, nowhere] = await Promise.all([
    run(["status", ...admin]),
    run(["engines", "list", "--json", ...admin]),
    run(["engines", "drain", "nobody", ...admin]),
    run(["engines", "--admin", "http://127.0.0.1:1"]),
  ]);
  expect(notReady).toMatchObject({ code: 1, stdout: expect.stringMatching(/^not ready: no engine is usable\n/) });
  expect(JSON.parse(listed.stdout)).toMatchObject([
    { id: one, draining: true },
    { id: other, draining: true },
  ]);
  expect(unknown).toMatchObject({ code: 1, stdout: "" });
  expect(unknown.stderr).toMatch(/answered 404: No engine has this id. \(engine_not_found\)\nList the engines/);
  expect(nowhere).toMatchObject({ code: 1, stdout: "" });
  expect(nowhere.stderr).toContain("No router answers at http://127.0.0.1:1. Start it, or set --admin");

  const undrained = await run(["engines", "undrain", one, "--json", ...admin]);
  expect(JSON.parse(undrained.stdout)).toMatchObject({ id: one, draining: false });
  expect((await fetch(`${router.url}/readyz`)).status).toBe(200);
});

test("the admin key guards the admin listener", async () => {
  const router = await serve([], "--admin-key", "key-of-the-operators");
  const admin = ["status", "--admin", router.adminUrl];
  const [wrong, right] = await Promise.all([
    run([...admin, "--key", "key-of-others"]),
    run(admin, { env: { ESPALIER_ADMIN_KEY: "key-of-the-operators" } }),
  ]);
  expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringContaining("(invalid_api_key)")]);
  expect([right.code, right.stdout]).toEqual([1, expect.stringMatching(/^not ready: no engines known\n/)]);
});

test("an address that is taken ends it with 1 and a hint that names the setting, for each listener", async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    taken.close();
  });
  const { port } = taken.address() as { port: number };
  // Whoever forks it is told so as well: it killed itself when it let go of its parent, as if that were gone.
  const forked = fork("apps/router/bin/espalier.mjs", ["serve", "--listen-port", String(port)], {
    ...{ execArgv: [], stdio: ["ignore", "ignore", "ignore", "ipc"] },
    env: { PATH: process.env.PATH, ESPALIER_SKIP_BUILD: "1" },
  });
  const forkedEnd = once(forked, "exit");
  const listeners = ["listen", "admin", "rollouts", "mesh", "endpoint-picker", "scale"];
  const settings = [...listeners.map((listener) => `${listener}.port`), "endpoint-picker.health-port"];
  const free = { listen: { port: 0 }, admin: { port: 0 } };
  const outcomes = await Promise.all(
    settings.map(async (setting) => {
      const [section = "", key = ""] = setting.split(".");
      const others = section === "endpoint-picker" ? { port: 0, "health-port": 0 } : {};
      const config = { ...free, log: { level: "error" }, [section]: { ...others, [key]: port } };
      return run(["serve", "--config", temporaryFile("espalier.json", JSON.stringify(config))]);
    }),
  );
  for (const [at, { code, stdout, stderr }] of outcomes.entries()) {
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toBe(
      `error: Cannot listen on 127.0.0.1:${port} (${settings[at]}): ` +
        `listen EADDRINUSE: address already in use 127.0.0.1:${port} (listen_failed)\n` +
        "Free the port or choose another one.\n",
    );
  }
  expect(await forkedEnd).toEqual([1, null]);
});

test("on SIGTERM it goes on for the time of the delay, every open stream comes to its end, and the exit code is 0", async () => {
  const urls = await engines({ engines: 2 });
  // Long enough for a request that comes when it is known to be no longer ready.
  const router = await serve(urls, "--drain-delay", "2s");
  const streams = await Promise.all(Array.from({ length: 6 }, () => stream(router.url, 40)));
  router.kill("SIGTERM");
  await waitFor(async () => (await fetch(`${router.url}/readyz`)).status === 503, { what: "not ready" });
  const late = await stream(router.url, 10);
  expect(await Promise.all([...streams, late].map(({ whole }) => whole))).toEqual(Array(7).fill(true));
  for (const { text } of streams) expect(text().match(/"text":/g)).toHaveLength(40);
  const { code, signal, stdout, stderr } = await router.ended;
  expect([code, signal, stdout]).toEqual([0, null, ""]);
  expect(stderr).toMatch(/"msg":"draining"[\s\S]*"msg":"stopped"/);
  expect(stderr).not.toContain("cut");
  expect(await isRefused(router.url)).toBe(true);
});

test("on Ctrl-C it takes no new requests but ends its answers; the second time it ends at once", async () => {
  const urls = await engines({ speed: 0.1 });
  const router = await serve(urls);
  const open = await stream(router.url, 2_000);
  router.killGroup("SIGINT");
  await waitFor(() => isRefused(router.url), { what: "closed listener" });
  const before = open.text().length;
  await waitFor(() => open.text().length > before, { what: "another token", deadlineMs: 10_000 });
  const startMs = performance.now();
  router.killGroup("SIGINT");
  expect((await router.ended).code).toBe(0);
  // The answer would go on for minutes.
  expect(performance.now() - startMs).toBeLessThan(5_000);
  expect(await open.whole).toBe(false);
});

test("a second SIGTERM during the delay ends it at once too", async () => {
  const router = await serve([], "--drain-delay", "60s");
  router.kill("SIGTERM");
  await router.until(/"msg":"draining"/);
  router.kill("SIGTERM");
  expect(await router.ended).toMatchObject({ code: 0, stdout: "" });
});

test.each([1, 2])(
  "of %d processes with --exit-with-stdin, none outlives the program that holds its input",
  async (count) => {
    const [engine = ""] = await engines({ speed: 0.1 });
    const ports = ["--listen-port", "0", "--admin-port", "0", "--rollouts-port", "0"];
    const flags = ["--json", "--exit-with-stdin", "--engine", engine, "--processes", String(count)];
    const router = start(["serve", ...flags, ...ports], { hasInput: true });
    await waitFor(() => router.stdout().endsWith("\n"), { what: "the addresses", deadlineMs: 60_000 });
    const { url, adminUrls, rolloutsUrl } = JSON.parse(router.stdout()) as Readonly<Record<string, string>>;
    expect([adminUrls?.length, new URL(rolloutsUrl!).hostname]).toEqual([count, "127.0.0.1"]);
    const isReady = async () => (await fetch(`${url}/readyz`)).status === 200;
    await waitFor(isReady, { what: "ready processes", deadlineMs: 60_000 });
    const open = await stream(url!, 40);
    const pids = [router.pid, ...childrenOf(router.pid)];
    router.process.stdin?.end();
    // As on Ctrl-C: the answer in flight comes to its end.
    expect([await open.whole, (await router.ended).code]).toEqual([true, 0]);
    await untilGone(pids);
  },
);

// Flushing the log into a closed pipe used to block the process for ever, deaf to every signal but SIGKILL.
test("it ends in order when nobody reads its log any more", async () => {
  const router = await serve([]);
  router.process.stderr?.destroy();
  router.kill("SIGINT");
  expect(await router.ended).toMatchObject({ code: 0, signal: null });
});

test("SIGHUP and `espalier reload` read the configuration again, and a broken one changes nothing", async () => {
  const file = temporaryFile("espalier.yaml", "policy: least_work\n");
  const router = await serve([], "--config", file);
  const policy = async () =>
    ((await (await fetch(`${router.adminUrl}/admin/config`)).json()) as { policy: { name: string } }).policy.name;
  writeFileSync(file, "policy: random\n");
  router.kill("SIGHUP");
  await waitFor(async () => (await policy()) === "random", { what: "the new policy" });
  writeFileSync(file, "polcy: random\n");
  const refused = await run(["reload", "--admin", router.adminUrl]);
  expect([refused.code, refused.stdout]).toEqual([1, expect.stringContaining("policy")]);
  expect(await policy()).toBe("random");
  router.kill("SIGTERM");
});

/*
 * The bodies of requests fill memory beside V8's heap, and V8 let the heap of a router with few other allocations grow by a
 * tenth between two collections of all of it: there was one for each 250 bodies of 48 KB. What V8 decides is in its trace.
 */
test("after a collection V8's heap may grow to three times what lives", async () => {
  const collecting = `
    import { setFlagsFromString } from "node:v8";
    import { runInNewContext } from "node:vm";
    setFlagsFromString("--trace-gc-verbose");
    setFlagsFromString("--expose-gc");
    runInNewContext("gc")();
    export const policies = {};
  `;
  const flags = ["--plugins", temporaryFile("collecting.mjs", collecting), "--listen-port", "0", "--admin-port", "0"];
  const router = start(["serve", "--engine", "http://127.0.0.1:9", ...flags]);
  await router.until(/ factor 3\.0 |new limit: \d+ KB \(3\.0\)/, 20_000);
});

/*
 * Node ends a process for a promise that was rejected while nobody held it: one forgotten `catch`, the router's or a
 * plugin's, ended all routers that met the same request.
 */
test("a promise that is rejected while nobody holds it is logged, and the router goes on", async () => {
  const careless = `
    export const hooks = { onAnswer() { void Promise.reject(new Error("nobody waits for this")); } };
  `;
  const flags = ["--plugins", temporaryFile("careless.mjs", careless), "--listen-port", "0", "--admin-port", "0"];
  const router = start(["serve", "--engine", "http://127.0.0.1:9", ...flags]);
  const [, url = ""] = await router.until(/serves at (\S+),/);
  const ask = () => fetch(`${url}/v1/chat/completions`, { method: "POST", body: "{}" });
  await ask();
  await router.until(/nobody waits for this/);
  expect((await ask()).status).toBe(415);
  router.kill("SIGTERM");
  expect((await router.ended).code).toBe(0);
});
