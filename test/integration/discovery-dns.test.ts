import { Resolver } from "node:dns/promises";
import { createSeededRandom } from "@espalier/core";
import { type DnsServer, freePort, startDnsServer, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { publishingSims } from "./cache-rig.ts";
import { ask, type Conversation, converse, type Turn, wordsOf } from "./cached-turns.ts";
import { joinRouter, untilFolded, untilLinked, untilQuiet, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Some of them take a while on a busy machine. */
const timeout = 90_000;
const deadlineMs = 30_000;

const engineName = "engines.test";
const routerName = "routers.test";
const engineHost = (at: number): string => `127.0.1.${at}`;
const routerHost = (at: number): string => `127.0.2.${at}`;

/** A name server of its own for engines and for clients, so that one can fail without the other. */
async function startRig(engineCount: number, routerCount: number) {
  const startServer = async (): Promise<DnsServer> => {
    const server = await startDnsServer();
    rig.own(() => server.stop());
    return server;
  };
  const [engineDns, routerDns] = [await startServer(), await startServer()];
  const count = (most: number): number[] => Array.from({ length: most }, (_, at) => at + 1);
  const enginePort = await freePort(count(engineCount).map(engineHost));
  const routerPort = await freePort(count(routerCount).map(routerHost));
  const sims = new Map<number, Sim>();
  const routers = new Map<number, RunningRouter>();
  const all = (): RunningRouter[] => [...routers.values()];
  const knows = async (router: RunningRouter, ids: readonly number[]): Promise<boolean> => {
    const listed = (await router.engines()).filter(({ state, models }) => state === "up" && models !== null);
    return listed.map(({ id }) => id).join() === ids.map((at) => `${engineHost(at)}:${enginePort}`).join();
  };
  return {
    ...{ engineDns, enginePort, routerPort, routerDns, routers, all },
    sim: (at: number): Sim => sims.get(at)!,
    async startEngine(at: number): Promise<void> {
      const [sim] = await publishingSims(rig, 1, { host: engineHost(at), port: enginePort, seed: at });
      sims.set(at, sim!);
    },
    async startRouter(at: number): Promise<void> {
      const source = {
        name: `${engineName}:${enginePort}`,
        servers: [engineDns.address],
        interval: "100ms",
        misses: 2,
      };
      const config = { discovery: { dns: [source] }, listen: { host: routerHost(at), port: routerPort } };
      routers.set(at, await joinRouter(rig, all()[0], [], { config, mesh: { "router-id": `router-${at}` } }));
    },
    nameEngines: (...ids: readonly number[]) => engineDns.set(engineName, { a: ids.map(engineHost) }),
    nameRouters: (...ids: readonly number[]) => routerDns.set(routerName, { a: ids.map(routerHost) }),
    /** Waits until every router has these engines, up, and no others, and reads their events. */
    async untilKnown(...ids: readonly number[]): Promise<void> {
      const areKnown = async () => (await Promise.all(all().map((router) => knows(router, ids)))).every(Boolean);
      await waitFor(areKnown, { what: `engines ${ids.join()} at every router`, deadlineMs });
      await untilRead(all(), ids.length);
    },
  };
}

type DnsRig = Awaited<ReturnType<typeof startRig>>;

/** A client that asks for the routers' addresses before each request, and goes to one of them at random. */
function createClient({ routerDns, routerPort }: DnsRig) {
  const resolver = new Resolver();
  resolver.setServers([routerDns.address]);
  const random = createSeededRandom(1);
  /** Requests, from their question on. */
  const open = new Set<Promise<unknown>>();
  const failures: unknown[] = [];
  const through = (send: (served: { url: string }) => Promise<Turn>): Promise<Turn> => {
    const request = resolver.resolve4(routerName).then((addresses) => {
      return send({ url: `http://${addresses[random.integer(addresses.length)]}:${routerPort}` });
    });
    const settled = request
      .then(
        (turn) => turn.status === 200 || failures.push(turn),
        (error: unknown) => failures.push(error),
      )
      .finally(() => open.delete(settled));
    open.add(settled);
    return request;
  };
  let asked = 0;
  return {
    through,
    failures,
    /** Waits for the requests that are under way now, so that whoever has left the name by now gets no more. */
    untilAnswered: async (): Promise<void> => void (await Promise.all([...open])),
    /** Keeps requests coming from several users at once, for as long as `meanwhile` takes. */
    async under(meanwhile: () => Promise<unknown>): Promise<void> {
      let isOver = false;
      const user = async (): Promise<void> => {
        while (!isOver && failures.length === 0) {
          const prompt = wordsOf(1_000_000 + asked++, 60);
          await through((served) => ask(served, "/v1/completions", { prompt, max_tokens: 8 }));
        }
      };
      const users = Array.from({ length: 4 }, user);
      const before = asked;
      try {
        await meanwhile();
        await waitFor(() => asked >= before + 20 || failures.length > 0, { what: "requests", deadlineMs });
      } finally {
        isOver = true;
        await Promise.allSettled(users);
      }
      expect(failures).toEqual([]);
    },
  };
}

/** Conversations, each of which can be taken one turn further. */
function createTalks({ all, sim }: DnsRig, { through }: ReturnType<typeof createClient>, count: number) {
  const talks = Array.from({ length: count }, (_, seed) => {
    const where = { url: "" };
    const conversation: Conversation = converse(where, "chat", { seed }, sim(1));
    let last: Turn | undefined;
    return async (): Promise<[Turn | undefined, Turn]> => {
      const before = last;
      last = await through((served) => {
        where.url = served.url;
        return conversation.turn();
      });
      return [before, last];
    };
  });
  /** One turn of each, at whatever router: where its cache is, if that engine is one of these. */
  return async (...engines: readonly number[]): Promise<void> => {
    for (const router of all()) await untilQuiet(router);
    const present = engines.map(sim);
    for (const turn of talks) {
      await untilFolded(all(), present);
      const [before, now] = await turn();
      if (!before || !present.some(({ id }) => id === before.engine)) continue;
      expect(now.engine).toBe(before.engine);
      expect(now.cached).toBeGreaterThan(0);
      expect(now.predicted).toBe(now.cached);
    }
  };
}

test("engines join and leave their name under load: nothing fails, and follow-ups go where their cache is", {
  timeout,
}, async () => {
  const fleet = await startRig(3, 1);
  for (const at of [1, 2]) await fleet.startEngine(at);
  fleet.nameEngines(1, 2);
  fleet.nameRouters(1);
  await fleet.startRouter(1);
  await fleet.untilKnown(1, 2);
  const client = createClient(fleet);
  const follow = createTalks(fleet, client, 3);
  await follow(1, 2);

  await fleet.startEngine(3);
  await client.under(async () => {
    fleet.nameEngines(1, 2, 3);
    await fleet.untilKnown(1, 2, 3);
  });
  await follow(1, 2, 3);

  await client.under(async () => {
    fleet.nameEngines(2, 3);
    await fleet.untilKnown(2, 3);
  });
  await follow(2, 3);
  await follow(2, 3);

  const [router] = fleet.all();
  const source = { source: `dns ${engineName}:${fleet.enginePort}` };
  const isUp = async () => (await router!.metrics()).sum("espalier_discovery_source_up", source) === 1;
  expect(await isUp()).toBe(true);
  await client.under(async () => {
    fleet.engineDns.mode = "fail";
    await waitFor(async () => !(await isUp()), { what: "failed question", deadlineMs });
    fleet.engineDns.mode = "answer";
    await waitFor(isUp, { what: "answered question", deadlineMs });
  });
  await fleet.untilKnown(2, 3);
  await follow(2, 3);
  expect(client.failures).toEqual([]);
});

test("routers join and leave their name under load: nothing fails, and follow-ups go where their cache is", {
  timeout,
}, async () => {
  const fleet = await startRig(2, 3);
  for (const at of [1, 2]) await fleet.startEngine(at);
  fleet.nameEngines(1, 2);
  fleet.nameRouters(1, 2);
  for (const at of [1, 2]) await fleet.startRouter(at);
  await untilLinked(fleet.all());
  await fleet.untilKnown(1, 2);
  const client = createClient(fleet);
  const follow = createTalks(fleet, client, 3);
  await follow(1, 2);

  await client.under(async () => {
    await fleet.startRouter(3);
    await untilLinked(fleet.all());
    await fleet.untilKnown(1, 2);
    fleet.nameRouters(1, 2, 3);
  });
  await follow(1, 2);

  await client.under(async () => {
    fleet.nameRouters(2, 3);
    await client.untilAnswered();
    const { router } = fleet.routers.get(1)!;
    fleet.routers.delete(1);
    expect(await router.drain.run({ delayMs: 0, graceMs: 60_000 })).toBe(0);
    await router.stop();
  });
  await fleet.untilKnown(1, 2);
  await follow(1, 2);
  await follow(1, 2);
  expect(client.failures).toEqual([]);
});
