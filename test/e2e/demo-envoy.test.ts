import { waitFor } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { envoyProgram } from "../integration/envoy-program.ts";
import { childrenOf, type Program, start, untilGone } from "./program.ts";

const program = envoyProgram("espalier demo --envoy");
const freePorts = ["--port", "0", "--admin-port", "0", "--envoy-port", "0", "--engines", "2"];

async function demo(...args: string[]): Promise<Program> {
  const running = start(["demo", "--envoy", ...freePorts, ...args], { env: { ENVOY_BIN: program! } });
  await running.until(/Ctrl-C stops everything/);
  return running;
}

/** What the printed curl line would send, and where to. */
function printed(greeting: string): readonly [url: string, body: string] {
  const [, url = "", body = ""] = /curl -N (\S+) -H '[^']+' \\\n +-d '([^']+)'/.exec(greeting) ?? [];
  return [url, body];
}

async function postJson(url: string, body: string): Promise<Response> {
  return fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body });
}

const sendPrinted = (greeting: string): Promise<Response> => postJson(...printed(greeting));

/** Waits until every router knows what an engine has cached, and that nothing is in flight: it would choose that engine. */
async function untilChosen(adminUrls: readonly string[], body: string, engine: string): Promise<void> {
  const choiceOf = async (url: string): Promise<unknown> => {
    const report = (await (await postJson(`${url}/admin/explain`, body)).json()) as {
      choice: { key?: unknown } | null;
    };
    return report.choice?.key;
  };
  await waitFor(async () => (await Promise.all(adminUrls.map(choiceOf))).every((key) => key === engine), {
    what: `routers that would choose ${engine}`,
  });
}

describe.skipIf(program === undefined)("a demo behind Envoy", () => {
  test("what it prints goes through Envoy to the engine that a router chose, and Ctrl-C ends every process", async () => {
    const running = await demo("--load", "0");
    const greeting = running.stdout();
    const [, gateway] = /^envoy +(\S+)/m.exec(greeting) ?? [];
    expect(greeting).toContain(`curl -N ${gateway}/v1/chat/completions`);
    const admins = Array.from(greeting.matchAll(/metrics (\S+)\/metrics/g), ([, url]) => url!);
    expect(admins).toHaveLength(3);
    const engines = new Set<string | null>();
    for (let turn = 0; turn < 6; turn++) {
      for (const engine of engines) await untilChosen(admins, printed(greeting)[1], engine!);
      const response = await sendPrinted(greeting);
      expect([response.status, response.headers.get("server")]).toEqual([200, "envoy"]);
      expect(await response.text()).toMatch(/data: \[DONE\]\n\n$/);
      engines.add(response.headers.get("x-espalier-engine"));
    }
    expect(engines.size, "whichever router Envoy asked").toBe(1);

    // Engines, three routers, Envoy and what ends it if the demo is killed.
    const children = childrenOf(running.pid);
    expect(children).toHaveLength(6);
    running.killGroup("SIGINT");
    expect(await running.ended).toMatchObject({ code: 0, signal: null });
    await untilGone(children, 5_000);
  });

  test("no process survives a demo that is killed", async () => {
    const running = await demo("--load", "20");
    const children = childrenOf(running.pid);
    running.kill("SIGKILL");
    await running.ended;
    await untilGone(children);
  });

  test("routers that are killed leave the others to serve, behind the same Envoy", async () => {
    const running = await demo("--load", "20");
    for (const left of [2, 1]) {
      const [, router = 0] = childrenOf(running.pid);
      process.kill(router, "SIGKILL");
      await running.until(new RegExp(`is gone; ${left} go on`));
      expect((await sendPrinted(running.stdout())).status).toBe(200);
    }
    running.killGroup("SIGINT");
    expect((await running.ended).code).toBe(0);
  });

  test("an Envoy that dies takes the demo with it, with exit code 1", async () => {
    const running = await demo("--load", "0", "--routers", "1");
    const children = childrenOf(running.pid);
    process.kill(children[2]!, "SIGKILL");
    const { code, stderr } = await running.ended;
    expect(code).toBe(1);
    expect(stderr).toContain("a demo process exited; stopping the others");
    await untilGone(children);
  });

  test("a program that is no Envoy: the demo says so, and leaves nothing", async () => {
    const running = start(["demo", "--envoy", ...freePorts, "--envoy-bin", "/bin/false"]);
    const { code, stderr } = await running.ended;
    expect(code).toBe(1);
    expect(stderr).toContain("error: Envoy ended (/bin/false)");
  });
});
