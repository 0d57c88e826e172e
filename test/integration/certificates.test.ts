import { X509Certificate } from "node:crypto";
import { connect, type TLSSocket } from "node:tls";
import { createRouter, loadConfig, servingStatus } from "@espalier/server";
import { connectGateway } from "@espalier/server/gateway-client";
import { type Certificate, createRecordingLogger, hasOpenssl, waitFor } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { certificateFiles, makeAuthority } from "./authorities.ts";
import { call, chat, openPost, post } from "./client.ts";
import { httpEngine, jsonEngine } from "./engines.ts";
import { PlayedExchange } from "./gateway.ts";
import { joinRouter, untilLinked } from "./mesh-rig.ts";
import { parseMetrics } from "./prometheus.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** The certificate that a new connection is shown, as PEM. */
function shown(url: string): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), rejectUnauthorized: false }, () => {
      const { raw } = socket.getPeerCertificate();
      socket.destroy();
      resolve(
        `-----BEGIN CERTIFICATE-----\n${raw
          .toString("base64")
          .match(/.{1,64}/g)!
          .join("\n")}\n-----END CERTIFICATE-----\n`,
      );
    });
    socket.on("error", reject);
  });
}

/** A router with a log of its own: what these tests break is logged as an error. */
async function startRouter(sections: object, ca?: string) {
  const logger = createRecordingLogger();
  const text = JSON.stringify({ listen: { port: 0 }, admin: { port: 0 }, ...sections });
  const router = createRouter({ config: loadConfig({ file: { path: "f.yaml", text } }), logger });
  rig.own(() => router.stop());
  await router.start();
  return {
    router,
    lines: logger.lines,
    metrics: async () =>
      parseMetrics((await call(`${router.adminUrl}/metrics`, { tls: ca === undefined ? {} : { ca } })).text),
  };
}

if (!hasOpenssl()) {
  process.stderr.write("NOT RUN: changes of certificates, because there is no openssl to make them with\n");
} else {
  describe("certificates that change", () => {
    test("are used by both listeners for new connections, at once after a signal, and no stream is cut", async () => {
      const authority = makeAuthority(rig);
      const [first, second] = [authority.issue(), authority.issue()];
      const [data, admin] = [certificateFiles(rig, first), certificateFiles(rig, first)];
      const [slow] = await rig.sims(1, { speed: 50 });
      const listeners = { listen: { port: 0, tls: data.tls }, admin: { port: 0, tls: admin.tls } };
      const router = await startRouter({ engines: [slow!.url], ...listeners }, authority.ca);
      await waitFor(() => router.router.readiness().ready, { what: "a ready router", deadlineMs: 15_000 });
      const { url, adminUrl } = router.router;
      const before = await router.metrics();
      const stream = openPost(
        `${url}/v1/chat/completions`,
        chat({ stream: true, max_tokens: 200 }),
        {},
        { ca: authority.ca },
      );
      await stream.head;
      data.write(second);
      admin.write(second);
      router.router.reload("signal");
      expect([await shown(url), await shown(adminUrl)]).toEqual([second.cert, second.cert]);
      expect((await stream.body).toString()).toMatch(/data: \[DONE\]\n\n$/);

      const after = await router.metrics();
      for (const listener of ["data", "admin"]) {
        const expiry = (page: typeof after) =>
          page.sum("espalier_tls_certificate_expiry_timestamp_seconds", { listener });
        expect(after.sum("espalier_tls_reloads_total", { listener, outcome: "applied" })).toBe(1);
        expect(expiry(before)).toBeGreaterThan(Date.now() / 1_000 + 86_400);
        expect(expiry(after)).toBeGreaterThanOrEqual(expiry(before));
      }
    });

    test("are used by the endpoint picker for new gateways, and open exchanges go on", async () => {
      const authority = makeAuthority(rig);
      const [first, second, own] = [authority.issue(), authority.issue(), authority.issue()];
      const files = certificateFiles(rig, { ...first, ca: authority.ca });
      const engine = await jsonEngine(rig, "{}");
      const { router } = await startRouter({
        engines: [engine.url],
        "endpoint-picker": { port: 0, "health-port": 0, tls: files.tls },
      });
      await waitFor(() => router.readiness().ready, { what: "a ready router" });
      const address = router.picker!.address;
      const gateway = connectGateway(address, authority.ca, own);
      rig.own(() => gateway.close());
      const open = new PlayedExchange(gateway.open()).head().body(JSON.stringify(chat()), false);
      expect(await gateway.health("readiness")).toBe(servingStatus.serving);
      files.write(second);
      router.reload("signal");
      expect(await shown(`https://${address}`)).toBe(second.cert);
      open.body("", true);
      expect((await open.routed()).destinations).toEqual([engine.id]);
      const stranger = connectGateway(address, authority.ca);
      rig.own(() => stranger.close());
      await expect(stranger.health("")).rejects.toThrow();
      const next = connectGateway(address, authority.ca, own);
      rig.own(() => next.close());
      expect(await next.health("")).toBe(servingStatus.serving);
    });

    test("are found without a signal", async () => {
      const authority = makeAuthority(rig);
      const [first, second] = [authority.issue(), authority.issue()];
      const files = certificateFiles(rig, first);
      const { router } = await startRouter({ listen: { port: 0, tls: files.tls } });
      expect(await shown(router.url)).toBe(first.cert);
      files.write(second);
      await waitFor(async () => (await shown(router.url)) === second.cert, {
        what: "the second certificate",
        deadlineMs: 15_000,
      });
    });

    test("stay as they were where the new ones are no good, which is told once, until they are", async () => {
      const authority = makeAuthority(rig);
      const [first, second] = [authority.issue(), authority.issue()];
      const files = certificateFiles(rig, first);
      const { router, lines, metrics } = await startRouter({ listen: { port: 0, tls: files.tls } });
      const errors = () => lines.filter(({ message }) => message.startsWith("certificates not renewed"));
      const failed = async () => (await metrics()).sum("espalier_tls_reloads_total", { outcome: "failed" });

      for (const [broken, count] of [
        [{ cert: "no certificate" }, 1],
        [{ cert: second.cert }, 2],
      ] as const) {
        files.write(broken);
        router.reload("signal");
        router.reload("signal");
        expect(await shown(router.url)).toBe(first.cert);
        expect(errors()).toHaveLength(count);
        expect(await failed()).toBe(count);
      }
      expect(JSON.stringify(errors())).toContain("cert.pem");
      files.write(second);
      router.reload("signal");
      expect(await shown(router.url)).toBe(second.cert);
      expect(await failed()).toBe(2);
    });

    test("of the authority decide which clients get in from then on", async () => {
      const [first, second] = [makeAuthority(rig), makeAuthority(rig)];
      const [own, oldClient, newClient] = [first.issue(), first.issue(), second.issue()];
      const files = certificateFiles(rig, { ...own, ca: first.ca });
      const { router } = await startRouter({ listen: { port: 0, tls: files.tls } });
      const ask = async (client: object) =>
        (await call(`${router.url}/live`, { tls: { ca: first.ca, ...client } })).status;
      expect(await ask(oldClient)).toBe(200);
      await expect(ask(newClient)).rejects.toThrow();

      files.write({ ca: first.ca + second.ca });
      router.reload("signal");
      expect([await ask(oldClient), await ask(newClient)]).toEqual([200, 200]);

      files.write({ ca: second.ca });
      router.reload("signal");
      expect(await ask(newClient)).toBe(200);
      await expect(ask(oldClient)).rejects.toThrow();

      // Node takes an empty list of authorities for all public ones.
      files.write({ ca: "" });
      router.reload("signal");
      expect(await ask(newClient)).toBe(200);
      await expect(startRouter({ listen: { port: 0, tls: files.tls } })).rejects.toMatchObject({
        code: "config_unreadable",
      });
    });
  });

  describe("certificates towards engines", () => {
    /** An engine that asks for certificates: it keeps the fingerprint of each that answered a user's request. */
    const strictEngine = async (own: Certificate, trusted: string) => {
      const shownBy: string[] = [];
      const engine = await httpEngine(
        rig,
        ({ response, socket, body }) => {
          shownBy.push((socket as TLSSocket).getPeerCertificate().fingerprint256);
          response.writeHead(200, { "content-type": "text/event-stream", connection: "close" });
          if (JSON.parse(body.toString()).stream === true) response.write("data: {}\n\n");
          else response.end("data: {}\n\ndata: [DONE]\n\n");
        },
        { tls: { ...own, ca: trusted, requestCert: true, rejectUnauthorized: true } },
      );
      return { ...engine, shownBy };
    };
    const fingerprint = ({ cert }: Certificate) => new X509Certificate(cert).fingerprint256;

    test("are changed with their authority; streams go on, and no session of the old ones is resumed", async () => {
      const [first, second] = [makeAuthority(rig), makeAuthority(rig)];
      const [oldOwn, newOwn] = [first.issue(), second.issue()];
      const old = await strictEngine(first.issue(), first.ca + second.ca);
      const files = certificateFiles(rig, { ...oldOwn, ca: first.ca });
      const { router, lines, metrics } = await startRouter({
        engines: [old.url],
        "engine-tls": files.tls,
        // While the engine is not trusted, it is not checked either.
        health: { interval: "1m", "up-after": 1 },
      });
      await waitFor(() => router.readiness().ready, { what: "a ready router", deadlineMs: 15_000 });
      const ask = async () => (await post(`${router.url}/v1/chat/completions`, chat())).status;
      const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
      await stream.head;
      expect([await ask(), await ask()]).toEqual([200, 200]);
      expect(new Set(old.shownBy)).toEqual(new Set([fingerprint(oldOwn)]));

      files.write(newOwn);
      router.reload("signal");
      expect([await ask(), await ask()]).toEqual([200, 200]);
      expect(old.shownBy.slice(3)).toEqual([fingerprint(newOwn), fingerprint(newOwn)]);

      for (const broken of [{ key: oldOwn.key }, { key: newOwn.key, ca: "" }]) {
        files.write(broken);
        router.reload("signal");
        expect(await ask()).toBe(200);
      }
      expect(lines.filter(({ message }) => message.startsWith("certificates not renewed"))).toHaveLength(2);

      files.write({ ca: second.ca });
      router.reload("signal");
      expect(await ask()).toBe(502);
      files.write({ ca: first.ca });
      router.reload("signal");
      expect(await ask()).toBe(200);
      expect(old.shownBy.at(-1)).toBe(fingerprint(newOwn));
      const page = await metrics();
      expect(page.sum("espalier_tls_reloads_total", { listener: "engines", outcome: "failed" })).toBe(2);
      expect(page.sum("espalier_tls_reloads_total", { listener: "engines", outcome: "applied" })).toBe(3);
      expect(page.sum("espalier_tls_certificate_expiry_timestamp_seconds", { listener: "engines" })).toBeGreaterThan(
        Date.now() / 1_000 + 86_400,
      );
      old.requests[0]!.response.end("data: [DONE]\n\n");
      expect((await stream.body).toString()).toMatch(/data: \[DONE\]\n\n$/);
    });

    test("that are no good at the start are refused: an authority's file without one would trust all public ones", async () => {
      const own = makeAuthority(rig).issue();
      const files = certificateFiles(rig, { ...own, ca: "" });
      await expect(startRouter({ "engine-tls": files.tls })).rejects.toMatchObject({ code: "config_unreadable" });
      const { "ca-file": authority } = files.tls as { "ca-file"?: string };
      await expect(startRouter({ "engine-tls": { "ca-file": authority } })).rejects.toMatchObject({
        code: "config_unreadable",
      });
    });
  });

  test("routers that are linked by certificates change them, and the authority, one after the other", async () => {
    const [first, second] = [makeAuthority(rig), makeAuthority(rig)];
    const join = async (seed: RunningRouter | undefined, from: typeof first, ca: string, id: string) => {
      const files = certificateFiles(rig, { ...from.issue(), ca });
      const mesh = { "router-id": id, secret: undefined, tls: files.tls };
      return { router: await joinRouter(rig, seed, [], { mesh, tokenizes: false }), files };
    };
    const a = await join(undefined, first, first.ca, "a");
    const b = await join(a.router, first, first.ca, "b");
    await untilLinked([a.router, b.router]);
    let changes = 0;
    const changeAll = async (change: (files: typeof a.files) => void): Promise<void> => {
      changes++;
      for (const { router, files } of [a, b]) {
        change(files);
        const applied = async () => (await router.metrics()).sum("espalier_tls_reloads_total", { listener: "mesh" });
        await waitFor(async () => (await applied()) === changes, { what: "certificates in use", deadlineMs: 15_000 });
      }
    };
    await changeAll((files) => files.write({ ca: first.ca + second.ca }));
    await changeAll((files) => files.write(second.issue()));
    await changeAll((files) => files.write({ ca: second.ca }));

    const c = await join(a.router, second, second.ca, "c");
    await untilLinked([a.router, b.router, c.router]);
    const ended = a.router.lines.filter(({ message }) => message === "router link closed");
    expect(ended).toEqual([]);
    const late = await join(a.router, first, first.ca, "late");
    const dialsFailed = async () => (await late.router.metrics()).sum("espalier_mesh_dial_failures_total");
    await waitFor(async () => (await dialsFailed()) > 0, { what: "a dial that fails", deadlineMs: 15_000 });
    expect(late.router.lines.map(({ message }) => message)).not.toContain("router linked");
  });
}
