import { EspalierError, type HttpRequest, type HttpResponse } from "@espalier/core";
import type { EngineRecord } from "@espalier/engines";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createResponseFinder } from "../src/data-plane/stored-responses.ts";

/*
 * A client could have all engines marked down: each unknown response id was asked of up to 64 engines over the
 * connections of the health checks, which then waited until they timed out.
 */
function setUp(engineCount: number) {
  const time = createVirtualTime();
  const asked: { readonly request: HttpRequest; answer(status: number): void; fail(): void }[] = [];
  const engines = Array.from({ length: engineCount }, (_, at) => ({ id: `e${at}`, url: `http://e${at}`, state: "up" }));
  const finder = createResponseFinder({
    fleet: { engines: engines as unknown as readonly EngineRecord[] },
    pools: { settingsFor: () => ({ upstreamHeaders: ["authorization", "Bearer k"] }) as never },
    http: (request) =>
      new Promise<HttpResponse>((resolve, reject) => {
        asked.push({
          request,
          answer: (status) => resolve({ status, headers: {}, body: "" }),
          fail: () => reject(new EspalierError("upstream_timeout")),
        });
      }),
    clock: time.clock,
  });
  const deny = (): void => {
    for (const { answer } of asked.splice(0)) answer(404);
  };
  return { time, asked, finder, deny };
}

test("however many ask for one response, each engine is asked once; the one that has it is told to all", async () => {
  const { asked, finder } = setUp(3);
  const found = Array.from({ length: 90 }, () => finder.find("resp_1"));
  expect(asked.map(({ request }) => request.url)).toEqual([0, 1, 2].map((at) => `http://e${at}/v1/responses/resp_1`));
  expect(asked[0]!.request.headers).toEqual({ authorization: "Bearer k" });
  asked[0]!.fail();
  asked[1]!.answer(200);
  asked[2]!.answer(404);
  expect(new Set(await Promise.all(found))).toEqual(new Set(["e1"]));
});

test("what no engine has is not asked for again for two seconds", async () => {
  const { time, asked, finder, deny } = setUp(2);
  const first = finder.find("resp_1");
  deny();
  expect(await first).toBeUndefined();
  time.advance(1_999);
  expect([await finder.find("resp_1"), asked.length]).toEqual([undefined, 0]);
  time.advance(1);
  const again = finder.find("resp_1");
  asked[0]!.answer(200);
  expect(await again).toBe("e0");
});

test("32 are looked for at once, the next is refused, and taken when one has ended", async () => {
  const { asked, finder, deny } = setUp(1);
  const looking = Array.from({ length: 32 }, (_, at) => finder.find(`resp_${at}`));
  await expect(finder.find("resp_32")).rejects.toMatchObject({ code: "overloaded" });
  deny();
  await Promise.all(looking);
  const next = finder.find("resp_32");
  asked[0]!.answer(200);
  expect(await next).toBe("e0");
});

test("of 4,097 that no engine has, the first is forgotten, and asked for again", async () => {
  const { asked, finder, deny } = setUp(1);
  for (let at = 0; at <= 4_096; at++) {
    const lookup = finder.find(`resp_${at}`);
    deny();
    await lookup;
  }
  await finder.find("resp_1");
  expect(asked).toHaveLength(0);
  void finder.find("resp_0");
  expect(asked).toHaveLength(1);
});
