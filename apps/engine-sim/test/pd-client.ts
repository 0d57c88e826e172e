import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished } from "vitest";
import { clientOf, type Json, type TestSim } from "./sim-client.ts";

type Transfer = NonNullable<EngineSimOptions["transfer"]>;

/** What `/sim/transfers` tells. */
export interface TransferState extends Json {
  readonly engineId: string;
  readonly port: number;
  readonly pinned: number;
  readonly importing: number;
  readonly exports: readonly Json[];
  readonly links: number;
  readonly inbox: { readonly held: number; readonly waiting: number };
  readonly storedBlocks: number;
  readonly totals: Record<string, number>;
}

/** An engine that hands blocks to others, or gets them. */
export interface PdSim extends TestSim {
  readonly port: number;
  transfers(): Promise<TransferState>;
}

/** A prompt of 100 tokens, six full blocks and a part of one. */
export const longPrompt = "pd!! ".repeat(80);
export const longPromptTokens = 100;

/** Starts an engine of a role, a hundred times faster than life unless told otherwise. */
export async function startPd(transfer: Transfer, options: EngineSimOptions = {}): Promise<PdSim> {
  const sim = await startEngineSim({ speed: 100, models: ["tiny"], transfer, ...options });
  onTestFinished(() => sim.stop());
  const [engine] = sim.engines;
  const client = clientOf(engine?.url ?? "", sim.stop);
  const transfers = async () => (await client.get("/sim/transfers")).json as TransferState;
  return { ...client, port: engine?.transferPort ?? 0, transfers };
}

/** A prefill and a decode engine with one protocol. */
export async function startPair(transfer: Omit<Transfer, "role">, options: EngineSimOptions = {}) {
  const prefill = await startPd({ ...transfer, role: "prefill" }, options);
  const decode = await startPd({ ...transfer, role: "decode" }, options);
  return { prefill, decode };
}

/** Waits until an engine has nothing to do and nothing is held for anybody. */
export async function untilNothingHeld(...sims: readonly PdSim[]): Promise<void> {
  for (const sim of sims) {
    await waitFor(
      async () => {
        const { pinned, importing, exports, inbox, links, totals } = await sim.transfers();
        const { active, stats } = await sim.state();
        const held = pinned + importing + links + exports.length + inbox.held + inbox.waiting + (totals.fetching ?? 0);
        return held + active.length + (stats.running ?? 0) + (stats.waiting ?? 0) === 0 && stats.kvUse === 0;
      },
      { what: "an engine that holds nothing", deadlineMs: 15_000 },
    );
  }
}

/** The tokens of its prompt that the newest request of an engine got from outside, and from cache and outside together. */
export async function lastImport(sim: TestSim): Promise<readonly [unknown, unknown]> {
  const [report] = (await sim.state()).requests.at(-1)?.reports ?? [];
  expect(report).toBeDefined();
  return [report?.importedTokens, report?.cachedTokens];
}
