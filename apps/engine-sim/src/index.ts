/**
 * Simulated engines: the model of `@espalier/engine-model` behind HTTP servers that look like vLLM's or SGLang's, in
 * real or scaled time, with faults on demand under `/sim/`.
 */
export type { EngineSimOptions } from "./options.ts";
export { type RunningEngine, type RunningEngineSim, startEngineSim } from "./start-engine-sim.ts";
