import { createHash, randomBytes } from "node:crypto";
import { silentLogger } from "@espalier/core";
import { createPickerServer } from "@espalier/server";
import { hasOpenssl, waitFor } from "@espalier/testing";
import { type EnvoyLimits, type EnvoyPickerTls, type RequestBodyMode, standardEnvoyLimits } from "espalier-router";
import { afterEach, describe, expect, test } from "vitest";
import { certificateFiles, makeAuthority } from "./authorities.ts";
import { quietSims } from "./cache-rig.ts";
import { converse, wordsOf } from "./cached-turns.ts";
import { call, chat, eventData, type Json, openPost, post } from "./client.ts";
import { httpEngine, jsonEngine } from "./engines.ts";
import { envoyProgram } from "./envoy-program.ts";
import { type GatewayOptions, meshPickers, pickerProcesses, startGateway } from "./envoy-rig.ts";
import { createRig } from "./rig.ts";

const program = envoyProgram("endpoint pickers behind the real Envoy");
const rig = createRig();
afterEach(() => rig.close());

if (!hasOpenssl()) {
  process.stderr.write("NOT RUN: endpoint pickers with certificates behind the real Envoy; openssl is not installed\n");
}

const bodyModes: readonly RequestBodyMode[] = ["full-duplex", "buffered", "none"];
const chatPath = "/v1/chat/completions";
const kibibyte = 1_024;
const mebibyte = 1_024 * kibibyte;

const digest = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

/** A chat request of about this many bytes, whose prompt is short. */
const sized = (at: number, sizeBytes: number, fields: Json = {}): Json =>
  chat({
    messages: [{ role: "user", content: wordsOf(at, 40) }],
    metadata: { padding: "x".repeat(sizeBytes) },
    ...fields,
  });

/** Calls `each` for every index, with so many at once. */
async function forEach(count: number, atOnce: number, each: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) await each(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}

describe.skipIf(program === undefined)("endpoint pickers behind the real Envoy", () => {
  test("turns of a conversation that meet different pickers 50 ms apart go to one engine", {
    timeout: 60_000,
  }, async () => {
    const sims = await quietSims(rig, 4, { speed: 50 });
    const routers = await meshPickers(rig, sims);
    // One Envoy before each picker, so that it is known which one is asked.
    const gateways = await Promise.all(routers.map((router) => startGateway(rig, program!, [router], sims)));
    const conversations = 100;
    let same = 0;
    let later = 0;
    await forEach(conversations, 5, async (seed) => {
      let turn = seed;
      const next = {
        get url() {
          return gateways[turn++ % gateways.length]!.url;
        },
      };
      const conversation = converse(next, "chat", { seed, system: wordsOf(-1 - seed, 800), answerTokens: 8 }, sims[0]!);
      const first = await conversation.turn();
      const answeredMs = performance.now();
      await waitFor(() => performance.now() - answeredMs >= 50, { what: "50 ms" });
      const second = await conversation.turn();
      expect([first.status, second.status]).toEqual([200, 200]);
      if (first.engine === second.engine) same++;
      if (second.predicted > 0) later++;
    });
    expect(same).toBeGreaterThanOrEqual(0.99 * conversations);
    expect(later).toBeGreaterThanOrEqual(0.99 * conversations);
    for (const router of routers) {
      expect((await router.metrics()).sum("espalier_requests_total")).toBeGreaterThan(conversations / 2);
      await router.untilIdle();
    }
  });

  test.each(bodyModes)("bodies of 1 byte to 8 MB reach the engine byte for byte, mode %s", async (requestBody) => {
    const engine = await httpEngine(rig, ({ response, body }) => response.end(digest(body)));
    const routers = await meshPickers(rig, [engine], { tokenizes: false });
    const { url } = await startGateway(rig, program!, routers, [engine], { requestBody });
    const sizes = [
      0,
      1,
      2,
      64 * kibibyte - 1,
      64 * kibibyte,
      64 * kibibyte + 1,
      256 * kibibyte,
      mebibyte,
      3_000_000,
      8_000_000,
    ];
    for (const size of sizes) {
      const body = randomBytes(size);
      const answer = await call(`${url}/v1/anything`, { method: "POST", body, headers: { "x-size": String(size) } });
      expect([answer.status, answer.text], `${size} bytes`).toEqual([200, digest(body)]);
    }
    const padded = Buffer.from(JSON.stringify(chat({ messages: [{ role: "user", content: "x é ".repeat(500_000) }] })));
    expect((await post(url + chatPath, padded)).text).toBe(digest(padded));
    expect(engine.requests.map(({ body }) => body.length)).toEqual([...sizes, padded.length]);
    // What is not shown to the picker stays as the client framed it.
    const { headers } = engine.requests.at(-1)!;
    expect(headers["content-length"]).toBe(requestBody === "full-duplex" ? undefined : String(padded.length));
    for (const router of routers) await router.untilIdle();
  });

  test("streams pass as they are made, 100 at once, and the routers know when they end", async () => {
    const sims = await quietSims(rig, 4, { speed: 20 });
    const routers = await meshPickers(rig, sims);
    const { url } = await startGateway(rig, program!, routers, sims);
    const streams = Array.from({ length: 100 }, (_, at) =>
      openPost(
        url + chatPath,
        chat({ stream: true, max_tokens: 30, messages: [{ role: "user", content: wordsOf(at, 200) }] }),
      ),
    );
    await waitFor(() => streams.some((stream) => /"content"/.test(stream.received())), { what: "a first token" });
    expect(
      streams.some((stream) => !stream.received().includes("[DONE]")),
      "some go on",
    ).toBe(true);
    const counted = routers.map(async (router) => (await router.engines()).flatMap(({ targets }) => targets));
    expect((await Promise.all(counted)).flat().some(({ load }) => load.requests !== 0)).toBe(true);
    for (const stream of streams) {
      expect((await stream.head).statusCode).toBe(200);
      const data = eventData((await stream.body).toString());
      expect(data.at(-1)).toBe("[DONE]");
      expect(data.filter((text) => /"content":"[^"]/.test(text))).toHaveLength(30);
    }
    const totals = await Promise.all(sims.map((sim) => sim.state()));
    expect(totals.reduce((sum, { requests }) => sum + requests.length, 0)).toBe(100);
    for (const router of routers) await router.untilIdle();
  });

  test("a client's own destination has no effect, with every picker well and with none", async () => {
    const engines = await Promise.all(["a", "b"].map((name) => jsonEngine(rig, JSON.stringify({ name }))));
    const [wanted, forged] = engines.map(({ id }) => id);
    const routers = await pickerProcesses(rig, engines);
    const listening = routers.map((router) => router.listening);
    const { url } = await startGateway(rig, program!, listening, engines, { subset: [wanted!] });
    const headers = {
      "x-gateway-destination-endpoint": forged!,
      "x-gateway-destination-endpoint-subset": forged!,
      "x-envoy-upstream-alt-stat-name": "forged",
    };
    for (let turn = 0; turn < 12; turn++)
      expect((await post(url + chatPath, chat(), headers)).json).toEqual({ name: "a" });
    const seen = engines[0]!.requests.map((request) => request.headers["x-gateway-destination-endpoint"]);
    expect(seen).toEqual(Array(12).fill(wanted));
    expect(engines[1]!.requests).toEqual([]);

    for (const router of routers) router.process.kill("SIGKILL");
    await Promise.all(routers.map((router) => router.exited));
    for (let turn = 0; turn < 6; turn++) expect((await post(url + chatPath, chat(), headers)).status).toBe(503);
    expect(engines.map(({ requests }) => requests.length)).toEqual([12, 0]);
  });

  const shown: readonly (readonly [string, GatewayOptions])[] = [
    ["heads of answers alone", { answersThroughPicker: false }],
    ["answers", { answersThroughPicker: true }],
  ];
  test.each(shown)(
    "a picker that sees %s is killed: only what was open there fails, nothing afterwards",
    {
      timeout: 60_000,
    },
    async (_, options) => {
      // Answers of 2,000 tokens outlast what happens meanwhile.
      const sims = await quietSims(rig, 3, { speed: 5 });
      const routers = await pickerProcesses(rig, sims);
      const listening = routers.map((router) => router.listening);
      const { url } = await startGateway(rig, program!, listening, sims, options);
      const open = Array.from({ length: 60 }, (_, at) =>
        openPost(url + chatPath, sized(at, 100, { stream: true, max_tokens: 2_000 })),
      );
      let failed = 0;
      for (const stream of open) stream.body.catch(() => failed++);
      await waitFor(() => open.every((stream) => stream.received().includes('"content"')), { what: "60 open answers" });
      routers[1]!.process.kill("SIGKILL");
      await routers[1]!.exited;
      // A third of them, where the picker carried the answers.
      const lost = options.answersThroughPicker ? open.length / routers.length : 0;
      await waitFor(() => failed >= lost, { what: "the end of what was open there" });

      // Short requests first, which Envoy can send to another picker: if nothing was open at the dead one, they find out.
      for (const sizeBytes of [100, 10 * kibibyte, 300 * kibibyte]) {
        await forEach(40, 8, async (at) => {
          const answer = await post(url + chatPath, sized(at, sizeBytes));
          expect(answer.status, answer.text).toBe(200);
        });
      }
      const before = open.map((stream) => stream.received().length);
      await waitFor(() => open.filter((stream, at) => stream.received().length > before[at]!).length === 60 - lost, {
        what: "more of every other answer",
      });
      expect(failed).toBe(lost);
      for (const stream of open) stream.destroy();
    },
  );

  test("a picker that is told to stop: no request fails", { timeout: 60_000 }, async () => {
    const sims = await quietSims(rig, 3, { speed: 50 });
    const routers = await pickerProcesses(rig, sims, ["--drain-delay", "2s"]);
    const { url } = await startGateway(
      rig,
      program!,
      routers.map(({ listening }) => listening),
      sims,
    );
    let isOver = false;
    const send = async (at: number): Promise<void> => {
      const body = sized(at, [100, 200 * kibibyte][at % 2]!, { stream: at % 3 === 0, max_tokens: 20 });
      const answer = await post(url + chatPath, body);
      expect([answer.status, answer.text.includes("error")], answer.text).toEqual([200, false]);
    };
    const clients = Array.from({ length: 6 }, async (_, first) => {
      for (let at = first; !isOver; at += 6) await send(at);
    });
    const load = Promise.all(clients);
    routers[1]!.process.kill("SIGTERM");
    await Promise.race([load, routers[1]!.exited]);
    isOver = true;
    await load;
    expect(await routers[1]!.exited).toBe(0);
    expect((await post(url + chatPath, chat())).status).toBe(200);
  });

  test("a picker that hangs: its requests go to another within seconds, later ones at once", {
    timeout: 60_000,
  }, async () => {
    const sims = await quietSims(rig, 3, { speed: 50 });
    const routers = await pickerProcesses(rig, sims);
    const { url } = await startGateway(
      rig,
      program!,
      routers.map(({ listening }) => listening),
      sims,
    );
    // Envoy has a connection to each.
    for (let turn = 0; turn < 6; turn++) expect((await post(url + chatPath, chat())).status).toBe(200);
    routers[1]!.process.kill("SIGSTOP");
    rig.own(() => void routers[1]!.process.kill("SIGCONT"));
    const startMs = performance.now();
    const answers = await Promise.all(Array.from({ length: 6 }, () => post(url + chatPath, chat())));
    expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
    expect(performance.now() - startMs).toBeLessThan(9_000);
    const laterMs = performance.now();
    for (let turn = 0; turn < 6; turn++) expect((await post(url + chatPath, chat())).status).toBe(200);
    expect(performance.now() - laterMs).toBeLessThan(2_000);
  });

  test.skipIf(!hasOpenssl())(
    "pickers with certificates: Envoy and they recognize each other, or nothing passes",
    async () => {
      const engine = await jsonEngine(rig, "{}");
      const authority = makeAuthority(rig);
      const theirs = certificateFiles(rig, { ...authority.issue(), ca: authority.ca });
      const { tls } = certificateFiles(rig, { ...authority.issue(), ca: makeAuthority(rig).ca });
      const routers = await meshPickers(rig, [engine], {
        config: { "endpoint-picker": { tls: theirs.tls } },
        tokenizes: false,
      });
      const own = { certFile: tls["cert-file"], keyFile: tls["key-file"] };
      const right = { caFile: (theirs.tls as Json)["ca-file"] as string, name: "127.0.0.1", own };
      const wrong: readonly EnvoyPickerTls[] = [
        { ...right, caFile: (tls as Json)["ca-file"] as string },
        { ...right, name: "router.test" },
        { caFile: right.caFile, name: right.name },
      ];
      for (const pickerTls of [right, ...wrong]) {
        const gateway = await startGateway(rig, program!, routers, [engine], { pickerTls });
        // Health checks are not encrypted, and pass in any case.
        expect(await gateway.stat("cluster.pickers.membership_healthy")).toBe(3);
        expect((await post(gateway.url + chatPath, chat())).status).toBe(pickerTls === right ? 200 : 503);
      }
      expect(engine.requests).toHaveLength(1);
    },
  );

  const hung: readonly (readonly [RequestBodyMode, Partial<EnvoyLimits>])[] = [
    ["full-duplex", { idleSeconds: 1 }],
    ["buffered", { messageSeconds: 1 }],
    ["none", { messageSeconds: 1 }],
  ];
  test.each(hung)(
    "a picker that is well but never answers, mode %s: Envoy ends the request",
    async (requestBody, limits) => {
      const engine = await jsonEngine(rig, "{}");
      let exchanges = 0;
      let closed = 0;
      const nothing = (): void => {};
      const silent = createPickerServer({
        ...{
          host: "127.0.0.1",
          port: 0,
          healthPort: 0,
          tls: undefined,
          maxMessageBytes: mebibyte,
          logger: silentLogger,
        },
        isReady: () => true,
        onStream() {
          exchanges++;
          const owner = { head: nothing, piece: nothing, complete: nothing, answered: nothing, ended: nothing };
          return { ...owner, drained: nothing, received: () => true, closed: () => void closed++ };
        },
      });
      await silent.start();
      rig.own(() => silent.stop());
      const given = { requestBody, limits: { ...standardEnvoyLimits, ...limits } };
      const picker = { url: "", picker: silent };
      const { url } = await startGateway(rig, program!, [picker], [engine], given);
      // 503 if it is the idle timeout of the exchange that ends first.
      expect([503, 504]).toContain((await post(url + chatPath, chat())).status);
      await waitFor(() => closed === exchanges, { what: "end of the exchange" });
      expect([exchanges, engine.requests.length]).toEqual([1, 0]);
    },
  );

  test("an engine that takes no connection: Envoy goes to the next one that the picker named", async () => {
    const sims = await quietSims(rig, 3);
    const config = { health: { interval: "1m", timeout: "2s" } };
    const routers = await meshPickers(rig, sims, { config: { policy: "round_robin", ...config } });
    const { url } = await startGateway(rig, program!, routers, sims);
    await sims[1]!.stop();
    for (let turn = 0; turn < 12; turn++) {
      const answer = await post(url + chatPath, sized(turn, turn % 2 === 0 ? 100 : mebibyte));
      expect(answer.status, answer.text).toBe(200);
      expect(answer.headers["x-espalier-engine"]).not.toBe(sims[1]!.id);
    }
    const pages = await Promise.all(routers.map((router) => router.metrics()));
    expect(pages.reduce((sum, page) => sum + page.sum("espalier_picker_served_elsewhere_total"), 0)).toBeGreaterThan(0);
    for (const router of routers) await router.untilIdle();
  });

  test("by headers alone: a session keeps its engine, whichever picker is asked", async () => {
    const engines = await Promise.all([1, 2, 3].map((name) => jsonEngine(rig, JSON.stringify({ name }))));
    const routers = await meshPickers(rig, engines, {
      config: { policy: { name: "consistent_hashing", "load-factor": 0 } },
      tokenizes: false,
    });
    const { url } = await startGateway(rig, program!, routers, engines, {
      requestBody: "none",
    });
    const used = new Set<unknown>();
    for (let session = 0; session < 12; session++) {
      const names = new Set<unknown>();
      for (let turn = 0; turn < 3; turn++) {
        const answer = await post(url + chatPath, chat(), { "x-session-id": `session ${session}` });
        expect(answer.status).toBe(200);
        names.add(answer.json.name);
      }
      expect(names.size).toBe(1);
      for (const name of names) used.add(name);
    }
    expect(used.size).toBeGreaterThan(1);
  });
});
