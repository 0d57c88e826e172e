import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, type RawConnection, rawConnection, rawPost } from "../integration/client.ts";
import { httpEngine, type SeenRequest } from "../integration/engines.ts";
import { createRig } from "../integration/rig.ts";
import { run, start } from "./program.ts";

/*
 * Descriptors that ran out were blamed on a healthy engine: clients took the last ones, no connection to the engine could be
 * opened, its breaker opened, every client was told that no engine is available, and the admin listener was dead.
 */
const rig = createRig();
afterEach(() => rig.close());

const request = rawPost("/v1/chat/completions", JSON.stringify(chat({ stream: true })));

test("900 clients at a router with 512 descriptors: as many are served as there is room for, and the engine is not blamed", async () => {
  const held: SeenRequest[] = [];
  const engine = await httpEngine(rig, (seen) => held.push(seen));
  const flags = ["--engine", engine.url, "--listen-port", "0", "--admin-port", "0", "--health-interval", "100ms"];
  const router = start(["serve", ...flags], { openFiles: 512 });
  const [, url = "", adminUrl = ""] = await router.until(/serves at (\S+), metrics and admin at (\S+)/);
  const view = async () => {
    const { json } = await call(`${adminUrl}/admin/engines`);
    return (
      json.engines as readonly { state: string; breaker: { state: string }; targets: { usable: boolean }[] }[]
    )[0]!;
  };
  await waitFor(async () => (await view()).targets[0]?.usable, { what: "a usable engine" });

  const clients: RawConnection[] = [];
  for (let at = 0; at < 900; at++) clients.push(await rawConnection(Number(new URL(url).port)));
  for (const client of clients) client.write(request);
  const refused = () => clients.filter(({ received }) => received() !== "").map(({ received }) => received());
  const closed = () => clients.filter(({ socket }) => socket.destroyed || socket.readableEnded).length;
  await waitFor(() => held.length + closed() >= 900, { what: "each client in its place", deadlineMs: 20_000 });

  expect(held.length).toBeGreaterThan(100);
  for (const answer of refused())
    expect(answer).toMatch(/^HTTP\/1.1 503 [\s\S]*"(too_many_connections|out_of_descriptors)"/);
  const probes = engine.control.length;
  await waitFor(() => engine.control.length >= probes + 10, { what: "further probes" });
  expect(await view()).toMatchObject({ state: "up", breaker: { state: "closed" } });

  for (const { response } of held.splice(0)) response.end("data: [DONE]\n\n");
  for (const { socket } of clients) socket.destroy();
  const next = async () => {
    const client = await rawConnection(Number(new URL(url).port));
    client.write(request);
    await waitFor(() => held.length > 0 || client.received() !== "", { what: "the next request in its place" });
    client.socket.destroy();
    return held.length > 0;
  };
  await waitFor(next, { what: "room again" });
});

test("with too few descriptors to run at all a router says how many it needs", async () => {
  const { code, stderr } = await run(["serve", "--engine", "http://127.0.0.1:9"], { openFiles: 256 });
  expect(code).toBe(2);
  expect(stderr).toBe(
    "error: a router needs to have 512 files open at once, and may have 256: raise it with `ulimit -n 65536`, or LimitNOFILE= of its systemd unit\n",
  );
});
