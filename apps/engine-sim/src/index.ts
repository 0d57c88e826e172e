/**
 * Simulated engines: the model of `@espalier/engine-model` behind HTTP servers with the API of vLLM or SGLang, in real or
 * scaled time. Faults are injected under `/sim/`.
 */
export type { EngineSimOptions } from "./options.ts";
export { startEngineSim } from "./start-engine-sim.ts";
