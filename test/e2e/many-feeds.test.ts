import { readFileSync } from "node:fs";
import { silentLogger, systemClock } from "@espalier/core";
import { createKvEventPublisher, type KvEventPublisher } from "@espalier/engine-model/kv-events";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { call, chat } from "../integration/client.ts";
import { httpEngine } from "../integration/engines.ts";
import { createRig } from "../integration/rig.ts";
import { temporaryFile } from "./files.ts";
import { start } from "./program.ts";

/** Targets whose caches a router follows at most. */
const maxTargets = 4_096;
/** Publishers: as many hosts, and ports of each in a row, as engines add a rank to the port. */
const hosts = 8;
const ranks = 64;
const publisherCount = hosts * ranks;
const firstPort = 24_000;
const lastPort = 32_000;

/** Feeds that a process may open under this test's limit of open files: what is left to others is half, or 3,000. */
function feedsWithin(openFiles: number): number {
  return Math.floor(Math.max((openFiles - 100) / 2, openFiles - 100 - 3_000) / 4);
}

async function startPublishers(): Promise<readonly KvEventPublisher[]> {
  for (let port = firstPort + (process.pid % 100) * ranks; port < lastPort; port += ranks) {
    const publishers = Array.from({ length: publisherCount }, (_, at) =>
      createKvEventPublisher({
        ...{ host: `127.1.0.${1 + Math.floor(at / ranks)}`, port: port + (at % ranks), topic: "" },
        ...{ dialect: "vllm-0.32", clock: systemClock, logger: silentLogger },
      }),
    );
    try {
      for (const publisher of publishers) await publisher.start();
      return publishers;
    } catch {
      // A port is taken.
      for (const publisher of publishers) await publisher.stop();
    }
  }
  throw new Error("no ports in a row are free");
}

interface FeedRow {
  readonly target: string;
  readonly state: string;
  readonly unusable: string | null;
  readonly messages?: number;
}

/*
 * The 342nd feed ended the process, with exit code 1, at every router and again after every restart: three of ZeroMQ's
 * sockets for a feed, 1,023 in a context, and nobody held the promise of a feed's start.
 */
test.runIf(process.platform === "linux")(
  "as many feeds as a router may have, and one more: all but that one are read, it says why, and requests are served",
  { timeout: 240_000 },
  async () => {
    const openFiles = Number(/^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1]);
    const feeds = Math.min(maxTargets, feedsWithin(openFiles));
    if (feeds < maxTargets)
      process.stderr.write(`NOT RUN with ${maxTargets} feeds but ${feeds}: \`ulimit -n\` is ${openFiles}\n`);
    expect(feeds, "more than libzmq's own bound").toBeGreaterThan(341);

    const rig = createRig();
    onTestFinished(() => rig.close());
    const engine = await httpEngine(rig, ({ response }) => response.end(JSON.stringify({ choices: [] })));
    const publishers = await startPublishers();
    onTestFinished(async () => void (await Promise.all(publishers.map((publisher) => publisher.stop()))));
    const [first] = publishers;
    const absent = Array.from({ length: Math.ceil((feeds - 1) / ranks) }, (_, at) => ({
      ...{ url: `http://127.2.0.${at + 1}:9`, models: ["tiny"], ranks: Math.min(ranks, feeds - 1 - at * ranks) },
      "kv-events": { endpoint: publishers[(at % hosts) * ranks]!.endpoint },
    }));
    const present = { url: engine.url, models: ["tiny"], "kv-events": { endpoint: first!.endpoint } };
    const config = {
      ...{ listen: { port: 0 }, admin: { port: 0 } },
      engines: [present, ...absent, { ...present, url: "http://127.2.1.1:9" }],
    };
    const router = start(["serve", "--config", temporaryFile("many.json", JSON.stringify(config))]);
    const [, url = "", adminUrl = ""] = await router.until(/serves at (\S+), metrics and admin at (\S+)/);
    const rows = async () => (await call(`${adminUrl}/admin/feeds`)).json.feeds as readonly FeedRow[];
    const connected = (row: FeedRow): boolean => row.state === "partial";
    const read = async () => (await rows()).filter(connected).length >= feeds;
    await waitFor(read, { what: `${feeds} feeds`, deadlineMs: 90_000 });

    const all = await rows();
    expect(all).toHaveLength(feeds + 1);
    const left = all.filter((row) => !connected(row));
    const why = feeds === maxTargets ? `limit of ${maxTargets} tracked targets reached` : "open files allow";
    expect(left.at(-1)).toMatchObject({ state: "off", unusable: expect.stringContaining(why) });
    expect(left.length).toBe(1);

    const answers = Array.from({ length: 100 }, () =>
      call(`${url}/v1/chat/completions`, { method: "POST", body: JSON.stringify(chat({ stream: false })) }),
    );
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(100).fill(200));
    first!.publish([{ type: "cleared" }]);
    const heard = async () => (await rows()).filter(({ messages = 0 }) => messages > 0).length;
    await waitFor(async () => (await heard()) >= Math.floor(feeds / publisherCount), { what: "an event at its feeds" });
  },
);
