import type { SimEngine } from "./sim-engine.ts";

/** What becomes of engines' messages on their way to readers. */
export interface EventFaults {
  isLost(engine: number, sequence: number): boolean;
  canReplay(engine: number): boolean;
  /** The next messages are lost. */
  lose(engine: number, messages: number): void;
  setReplay(engine: number, isOn: boolean): void;
  /** Nothing more is lost. What was, stays so. */
  heal(): void;
}

/** Must be made before any reader listens, so that it hears of each message first. */
export function createEventFaults(engines: readonly SimEngine[]): EventFaults {
  const states = engines.map((engine) => {
    const state = { left: 0, lost: new Set<number>(), canReplay: true };
    engine.onMessage(({ sequence }) => {
      if (state.left === 0) return;
      state.left--;
      state.lost.add(sequence);
    });
    engine.onLife(() => state.lost.clear());
    return state;
  });
  return {
    isLost: (engine, sequence) => states[engine]!.lost.has(sequence),
    canReplay: (engine) => states[engine]!.canReplay,
    lose: (engine, messages) => {
      states[engine]!.left += messages;
    },
    setReplay: (engine, isOn) => {
      states[engine]!.canReplay = isOn;
    },
    heal() {
      for (const state of states) state.left = 0;
    },
  };
}
