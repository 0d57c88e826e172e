import { expect, test } from "vitest";
import { enginePresets } from "@espalier/engine-model";
import { createSeededRandom } from "@espalier/common";
import { createChainBuilder } from "../../src/clients/chain-builder.ts";
import { SimFleet } from "../../src/fleet/sim-fleet.ts";
import { defaultTiming } from "../../src/run/timing.ts";

for (const [routers, links, sharing] of [[1,"delays","oracle"],[3,"real","mesh"]] as const)
test(`${sharing} ${links} ${routers}`, async () => {
  const fleet = new SimFleet({
    engines: 8,
    parameters: { ...enginePresets["smg-generic"].parameters, blockCount: 4_000 },
    routers, links, sharing,
    policy: "least_work",
    timing: defaultTiming,
    seed: 1,
  });
  const t0 = performance.now();
  await fleet.start();
  console.log("started", fleet.time.clock.nowMs(), performance.now() - t0);
  const random = createSeededRandom(7);
  const { scheduler, clock } = fleet.time;
  let index = 0, done = 0, cached = 0, prompts = 0, ttft = 0, errors: Record<string, number> = {};
  const sessions = 60;
  const turns = 8;
  for (let s = 0; s < sessions; s++) {
    const chain = createChainBuilder({ seed: 5 });
    chain.append(1 + (s % 5), 500);
    let tokens = 500;
    const next = (turn: number): void => {
      if (turn === turns) { done++; return; }
      chain.append(1000 + s * 100 + turn * 2, 400); tokens += 400;
      const promptTokens = tokens;
      chain.append(1001 + s * 100 + turn * 2, 100); tokens += 100;
      const sent = clock.nowMs();
      fleet.send({ index: index++, session: s, turn, promptTokens, outputTokens: 100, chain: chain.view() } as never, (o) => {
        if (o.error) errors[o.error] = (errors[o.error] ?? 0) + 1;
        if (turn > 0) { cached += o.cachedTokens; prompts += promptTokens; }
        ttft += o.firstTokenMs - sent;
        scheduler.after(500 + random.float() * 3000, () => next(turn + 1));
      });
    };
    scheduler.after(random.float() * 5000, () => next(0));
  }
  for (let at = 0; at < 100 && done < sessions; at++) await fleet.run(clock.nowMs() + 1000);
  console.log({ done, cached: cached / prompts, ttft: ttft / index, errors, at: clock.nowMs(), wall: performance.now() - t0, bytes: fleet.network.bytesSent });
  await fleet.stop();
  expect(done).toBe(sessions);
}, 60_000);
