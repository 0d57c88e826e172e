/** What of the simulator's inside these tests look at. */
export { RealView } from "../../packages/simulator/src/fleet/real-view.ts";
export type { EngineMessage, SimEngine } from "../../packages/simulator/src/fleet/sim-engine.ts";
