import { type Child, type RouterListening, startLocalRouter } from "espalier-router";
import { readTreeUsage } from "../support/process-tree.ts";
import { routerProgram } from "../support/router-program.ts";
import { pauseFor, untilNothingMissing } from "../support/until.ts";
import { openFiles } from "./limits-rig.ts";
import type { PartOptions, PartResult } from "./parts.ts";

interface MeshPage {
  readonly members?: readonly { readonly isLinked: boolean }[];
}

const startTimeoutMs = 60_000;
const linkedWithinMs = 60_000;
const settleMs = 5_000;
const bytesPerMb = 1e6;

/** So many idle routers, each linked with each, then two more. */
export async function runRouters({ size, isQuick, ports, note }: PartOptions): Promise<PartResult> {
  const routers: Child<RouterListening>[] = [];
  const startMs = ports.clock.nowMs();
  const start = async (): Promise<void> => {
    const seeds = routers.slice(0, 1).flatMap(({ listening }) => listening.meshAddress ?? []);
    const mesh = { routerId: `router-${routers.length + 1}`, seeds };
    const own = { engineUrls: [], port: 0, adminPort: 0, mesh, startTimeoutMs, arguments: ["--log-level", "error"] };
    routers.push(await startLocalRouter({ ...own, runBy: routerProgram }));
  };
  const linksOf = async ({ listening }: Child<RouterListening>): Promise<number> => {
    const page = (await (await fetch(`${listening.adminUrl}/admin/mesh`)).json()) as MeshPage;
    return page.members?.filter(({ isLinked }) => isLinked).length ?? 0;
  };
  const untilLinked = async (others: number): Promise<void> =>
    untilNothingMissing(
      async () => {
        const fewest = Math.min(...(await Promise.all(routers.map(linksOf))));
        return fewest < others ? `a router is linked with ${fewest} of ${others}` : undefined;
      },
      linkedWithinMs,
      ports,
    );
  const usage = () => routers.map(({ process }) => readTreeUsage(process.pid!));
  try {
    while (routers.length < size) {
      await start();
      if (routers.length % 8 === 0) note(`${routers.length} routers run`);
    }
    await untilLinked(size - 1);
    const readyMs = ports.clock.nowMs() - startMs;
    await pauseFor(isQuick ? 0 : settleMs, ports.scheduler);
    const [before, beganMs] = [usage(), ports.clock.nowMs()];
    await pauseFor(settleMs, ports.scheduler);
    const seconds = (ports.clock.nowMs() - beganMs) / 1_000;
    const after = usage();
    const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
    const figures = {
      ready_ms: readyMs,
      idle_cpu_percent: (mean(after.map(({ cpuSeconds }, at) => cpuSeconds - before[at]!.cpuSeconds)) * 100) / seconds,
      rss_mb: mean(after.map(({ residentBytes }) => residentBytes)) / bytesPerMb,
      descriptors: Math.max(...routers.map(({ process }) => openFiles(process.pid!))),
    };
    await start();
    await untilLinked(size);
    const last = `one more is linked with all ${size}`;
    await start();
    await pauseFor(settleMs, ports.scheduler);
    const links = await linksOf(routers.at(-1)!);
    return { reached: size, figures, beyond: `${last}; a second one with ${links} of ${size + 1}` };
  } finally {
    await Promise.all(routers.map((router) => router.stop()));
  }
}
