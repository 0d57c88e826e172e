import type { EngineParameters } from "@espalier/engine-model";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { type EngineMessage, ModelledEngine, type SimEngine } from "../../src/fleet/sim-engine.ts";
import { engineParameters } from "./requests.ts";

export interface EngineRig {
  readonly time: VirtualTime;
  readonly engine: SimEngine;
  /** All that it has told, whatever its epoch. */
  readonly messages: readonly EngineMessage[];
}

export interface EngineRigOptions {
  readonly parameters?: Partial<EngineParameters>;
  readonly hasEvents?: boolean;
  readonly keepsMessages?: boolean;
}

/** An engine in virtual time that keeps its messages. */
export function createEngineRig({
  parameters,
  hasEvents = true,
  keepsMessages = true,
}: EngineRigOptions = {}): EngineRig {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const engine = new ModelledEngine({
    ...{ number: 0, parameters: { ...engineParameters, ...parameters }, clock, scheduler, hasEvents, keepsMessages },
  });
  const messages: EngineMessage[] = [];
  engine.onMessage((message) => messages.push(message));
  return { time, engine, messages };
}
