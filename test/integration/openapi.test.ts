import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { dashboardFiles } from "@espalier/dashboard";
import { createRouter, loadConfig } from "@espalier/server";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { publishingSims } from "./cache-rig.ts";
import { type Answer, call, chat, post } from "./client.ts";
import { meshRouters, untilLinked, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

/** The file that describes the admin API, against routers that run: every route, every answer's shape. */
const document = JSON.parse(readFileSync(new URL("../../docs/openapi.json", import.meta.url), "utf8")) as {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
};

interface Response {
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
}

interface Operation {
  readonly operationId: string;
  readonly security?: readonly object[];
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly responses: Readonly<Record<string, Response>>;
}

const rig = createRig();
afterEach(() => rig.close());

const ajv = new Ajv2020({
  strict: false,
  allErrors: true,
  formats: { "date-time": (text: string) => !Number.isNaN(Date.parse(text)) },
});
const schemaUri = "https://espalier.example/openapi.json";
beforeAll(() => {
  ajv.addSchema(document, schemaUri);
});

/** The part of fastify that tells of routes. */
interface Application {
  addHook(
    name: "onRoute",
    hook: (route: { readonly method: string | readonly string[]; readonly url: string }) => void,
  ): void;
}

/** Every application's routes, noted when they are registered. */
const applications: { readonly method: string; readonly path: string }[][] = [];
const noteRoutes = (message: unknown): void => {
  const { fastify } = message as { readonly fastify: Application };
  const routes: { method: string; path: string }[] = [];
  applications.push(routes);
  fastify.addHook("onRoute", ({ method, url }) => {
    for (const each of [method].flat()) if (each !== "HEAD") routes.push({ method: each, path: url });
  });
};
beforeAll(() => subscribe("fastify.initialization", noteRoutes));
afterAll(() => unsubscribe("fastify.initialization", noteRoutes));
afterEach(() => {
  applications.length = 0;
});

const written = ({ method, path }: { readonly method: string; readonly path: string }): string =>
  `${method} ${path.replace(/:(\w+)/g, "{$1}")}`;

/** Not a route of the application, but of the server's upgrades. */
const websocketPath = "/yjs/{document}";
const documented = Object.entries(document.paths).flatMap(([path, operations]) =>
  Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
);

test("every route is in the file, and the file has no other", async () => {
  await rig.router({ page: { files: async () => dashboardFiles() } });
  const routes = applications.find((each) => each.some(({ path }) => path === "/admin/status")) ?? [];
  expect([...new Set(routes.map(written))].sort()).toEqual(
    documented.filter((each) => each !== `GET ${websocketPath}`).sort(),
  );
});

test("every GET is answered to HEAD, also where the GET is a stream without end", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], page: { files: async () => dashboardFiles() } });
  for (const each of documented) {
    const [method, path] = each.split(" ") as [string, string];
    if (method !== "GET" || path === websocketPath) continue;
    const url = router.adminUrl + path.replace("{name}", "index.html").replace("{id}", encodeURIComponent(sim!.id));
    const { status, text } = await call(url, { method: "HEAD", headers: { accept: "text/html" } });
    expect([status === 200 || status === 302 || path === "/admin/requests/{id}", text], path).toEqual([true, ""]);
  }
});

test("a router serves the file", async () => {
  const router = await rig.router();
  const { status, headers, json } = await ask(router, "GET", "/admin/openapi.json");
  expect([status, headers["content-type"]]).toEqual([200, "application/json; charset=utf-8"]);
  expect(json).toEqual(document);
});

test("operations have names of their own, and parameters for what their paths leave open", () => {
  expect(document.openapi).toMatch(/^3\.1\./);
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.values(methods).map((operation) => ({ path, operation })),
  );
  const names = operations.map(({ operation }) => operation.operationId);
  expect(new Set(names).size).toBe(names.length);
  for (const { path, operation } of operations) {
    const open = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    const given = (operation.parameters ?? []).filter((each) => each.in === "path").map(({ name }) => name);
    expect([path, given]).toEqual([path, open]);
  }
});

/** The schema of an answer; undefined where the file gives none. Fails for an answer that the file does not have. */
function schemaOf(
  method: string,
  path: string,
  answer: Pick<Answer, "status" | "headers">,
): ValidateFunction | undefined {
  const response = document.paths[path]?.[method.toLowerCase()]?.responses[answer.status];
  expect(response, `${method} ${path} answered ${answer.status}`).toBeDefined();
  const { content } = response ?? {};
  if (!content) return undefined;
  const type = String(answer.headers["content-type"]).split(";")[0] ?? "";
  const found = Object.hasOwn(content, type) ? type : "*/*";
  expect(Object.keys(content), `${method} ${path}`).toContain(found);
  const place = ["paths", path, method.toLowerCase(), "responses", String(answer.status)];
  const pointer = [...place, "content", found, "schema"].map((part) =>
    encodeURIComponent(part.replaceAll("~", "~0").replaceAll("/", "~1")),
  );
  return ajv.getSchema(`${schemaUri}#/${pointer.join("/")}`);
}

/** Fails unless the answer has the documented shape. @returns the answer */
function expectDocumented(method: string, path: string, answer: Answer): Answer {
  const validate = schemaOf(method, path, answer);
  if (validate && String(answer.headers["content-type"]).startsWith("application/json")) {
    const isValid = validate(answer.json);
    expect(isValid ? [] : validate.errors, `${method} ${path}: ${answer.text.slice(0, 2_000)}`).toEqual([]);
  }
  return answer;
}

/** Asks a router, at a path as the file has it, with what stands for its parameter. */
async function ask(router: RunningRouter, method: string, path: string, body?: unknown, id = ""): Promise<Answer> {
  const real = path.replace(/\{\w+\}/, encodeURIComponent(id));
  return expectDocumented(method, path, await router.admin(method, real, body));
}

/** They end with the connection. */
const streamed: readonly string[] = ["/admin/decisions", "/admin/recording"];

test("answers of a router by itself have the documented shapes", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], page: { files: async () => dashboardFiles() } });
  await post(`${router.url}/v1/chat/completions`, chat());
  await router.untilIdle();
  for (const [path, operations] of Object.entries(document.paths)) {
    if (!operations.get || path.includes("{") || streamed.includes(path)) continue;
    const { status } = await ask(router, "GET", path);
    expect([200, 302, 404]).toContain(status);
  }
  expect((await ask(router, "GET", "/dashboard/{name}", undefined, "nothing.js")).status).toBe(404);
  const page = dashboardFiles().find(({ name }) => name !== "index.html");
  if (page) expect((await ask(router, "GET", "/dashboard/{name}", undefined, page.name)).status).toBe(200);
  const readable = ["dashboard", "history", "prefixes", "programs", "decisions"];
  for (const name of readable) await ask(router, "OPTIONS", `/admin/${name}`);
});

test("reloads that succeed and that fail", async () => {
  const written = (policy: string) =>
    loadConfig({ file: { path: "router.yaml", text: `policy: ${policy}\nlisten: { port: 0 }\nadmin: { port: 0 }` } });
  let policy = "random";
  const router = createRouter({
    config: written(policy),
    configSource: { file: undefined, read: () => written(policy) },
    logger: createRecordingLogger(),
  });
  rig.own(() => router.stop());
  await router.start();
  const reload = async () =>
    expectDocumented("POST", "/admin/reload", await call(`${router.adminUrl}/admin/reload`, { method: "POST" }));
  const status = async () => expectDocumented("GET", "/admin/status", await call(`${router.adminUrl}/admin/status`));
  for (const [next, code] of [
    ["round_robin", 200],
    ["unknown", 422],
  ] as const) {
    policy = next;
    expect((await reload()).status).toBe(code);
    expect((await status()).json.lastReload).not.toBeNull();
  }
});

test("engines that are added, drained, looked at and removed", async () => {
  const [first, second] = await rig.sims(2);
  const router = await rig.router({ engines: [first!.url] });
  expect((await ask(router, "POST", "/admin/engines", { url: second!.url })).status).toBe(201);
  expect((await ask(router, "POST", "/admin/engines", { url: 7 })).status).toBe(400);
  const item = "/admin/engines/{id}";
  expect((await ask(router, "GET", item, undefined, second!.id)).status).toBe(200);
  expect((await ask(router, "PATCH", item, { draining: true }, second!.id)).status).toBe(200);
  expect((await ask(router, "PATCH", item, { draining: 1 }, second!.id)).status).toBe(400);
  expect((await ask(router, "DELETE", item, undefined, second!.id)).status).toBe(204);
  for (const method of ["GET", "DELETE"]) expect((await ask(router, method, item, undefined, "x")).status).toBe(404);
});

test("the status of an endpoint picker", async () => {
  const router = await rig.router({ config: { "endpoint-picker": { port: 0, "health-port": 0 } } });
  const { json } = await ask(router, "GET", "/admin/status");
  expect(json.picker).toEqual({ address: expect.any(String), healthAddress: expect.any(String) });
});

test("probes of a router that cannot serve yet", async () => {
  const router = await rig.router({ engines: [], usable: 0 });
  expect((await ask(router, "GET", "/readyz")).status).toBe(503);
  expect((await ask(router, "GET", "/livez")).status).toBe(200);
});

test("what was decided about a request, and one that nobody knows", async () => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url) });
  await post(`${router.url}/v1/chat/completions`, chat(), { "x-request-id": "seven" });
  const item = "/admin/requests/{id}";
  expect((await ask(router, "GET", item, undefined, "seven")).status).toBe(200);
  expect((await ask(router, "GET", item, undefined, "eight")).status).toBe(404);
});

test("explanations, and what a request is refused by", async () => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { admission: { mode: "on" } } });
  expect((await ask(router, "POST", "/admin/explain", chat())).status).toBe(200);
  expect((await ask(router, "POST", "/admin/explain", chat({ model: "unknown" }))).status).toBe(404);
  expect((await ask(router, "POST", "/admin/explain", {})).status).toBe(400);
});

test("routers of a mesh that read events: status, mesh, feeds, prefixes and explanations", async () => {
  const sims = await publishingSims(rig, 2);
  const routers = await meshRouters(rig, 2, sims);
  await untilLinked(routers);
  await untilRead(routers, 2);
  const [one] = routers as [RunningRouter, RunningRouter];
  await post(`${one.url}/v1/chat/completions`, chat());
  for (const router of routers) {
    for (const path of [
      "/admin/status",
      "/admin/mesh",
      "/admin/feeds",
      "/admin/history",
      "/admin/prefixes",
      "/admin/engines",
    ]) {
      expect((await ask(router, "GET", path)).status).toBe(200);
    }
    expect((await ask(router, "POST", "/admin/explain", chat())).status).toBe(200);
  }
});

test("decisions as they are streamed", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const controller = new AbortController();
  rig.own(() => controller.abort());
  const stream = await fetch(`${router.adminUrl}/admin/decisions`, { signal: controller.signal });
  let text = "";
  const reading = (async () => {
    for await (const piece of stream.body ?? []) text += Buffer.from(piece).toString("utf8");
  })().catch(() => {});
  const headers = Object.fromEntries(stream.headers);
  const validate = schemaOf("GET", "/admin/decisions", { status: stream.status, headers });
  await post(`${router.url}/v1/chat/completions`, chat());
  const batches = () =>
    [...text.matchAll(/^data: (.*)$/gm)].map(([, data = ""]) => JSON.parse(data) as { decisions: unknown[] });
  await waitFor(() => batches().some(({ decisions }) => decisions.length > 0), { what: "a decision" });
  for (const batch of batches()) expect(validate?.(batch) ? [] : validate?.errors).toEqual([]);
  await router.router.stop();
  await reading;
});

test("requests as they are recorded, and what a recording is refused by", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { admission: { mode: "on" } } });
  expect((await ask(router, "GET", "/admin/recording")).status).toBe(400);
  const controller = new AbortController();
  rig.own(() => controller.abort());
  const headers = { "x-espalier-salt": "0123456789abcdef".repeat(2) };
  const stream = await fetch(`${router.adminUrl}/admin/recording`, { headers, signal: controller.signal });
  const validate = schemaOf("GET", "/admin/recording", {
    status: stream.status,
    headers: Object.fromEntries(stream.headers),
  });
  let text = "";
  const reading = (async () => {
    for await (const piece of stream.body ?? []) text += Buffer.from(piece).toString("utf8");
  })().catch(() => {});
  await post(`${router.url}/v1/chat/completions`, chat(), { "x-session-id": "seven" });
  const lines = () =>
    text
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as object);
  await waitFor(() => lines().some((line) => "blocks" in line), { what: "a request" });
  for (const line of lines()) expect(validate?.(line) ? [] : validate?.errors).toEqual([]);
  await router.router.stop();
  await reading;
});

test("documents open as websockets, others do not", async () => {
  const router = await rig.router();
  expect(document.paths[websocketPath]?.get?.responses).toHaveProperty("101");
  const base = `${router.adminUrl.replace("http", "ws")}/yjs`;
  const socket = new WebSocket(`${base}/overview/router`);
  await once(socket, "open");
  socket.close();
  await once(socket, "close");
  const other = new WebSocket(`${base}/nothing`);
  const [error] = (await once(other, "error")) as [Error];
  expect(error.message).toContain("404");
});

test("what asks for the key says so, and nothing else does", async () => {
  const router = await rig.router({
    config: { admin: { key: "the-admin-key" } },
    page: { files: async () => dashboardFiles() },
  });
  for (const [path, operations] of Object.entries(document.paths)) {
    if (path === websocketPath) continue;
    for (const [method, { security }] of Object.entries(operations)) {
      const url = router.adminUrl + path.replace(/\{\w+\}/, "x");
      const answer = await call(url, { method: method.toUpperCase() });
      expect([method, path, answer.status === 401]).toEqual([method, path, security === undefined]);
      expectDocumented(method.toUpperCase(), path, answer);
    }
  }
});
