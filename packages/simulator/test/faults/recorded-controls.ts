import type { FleetControls } from "../../src/faults.ts";

/**
 * Controls of no fleet: they write down what was asked of them.
 *
 * @param isRouterUp asked each time
 */
export function createRecordedControls(isRouterUp: () => boolean = () => false): {
  readonly controls: FleetControls;
  readonly calls: string[];
} {
  const calls: string[] = [];
  const note =
    (name: string) =>
    (...values: unknown[]): void => {
      calls.push([name, ...values.map((value) => JSON.stringify(value))].join(" "));
    };
  const controls: FleetControls = {
    routerCount: 9,
    engineCount: 100,
    partition: note("partition"),
    cutLink: note("cutLink"),
    mendLink: note("mendLink"),
    resetLink: note("resetLink"),
    setLinkSpeed: note("setLinkSpeed"),
    heal: note("heal"),
    isRouterUp,
    killRouter: note("killRouter"),
    leaveRouter: note("leaveRouter"),
    startRouter: note("startRouter"),
    pauseRouter: note("pauseRouter"),
    resumeRouter: note("resumeRouter"),
    jumpClock: note("jumpClock"),
    setDrift: note("setDrift"),
    isEngineUp: () => true,
    killEngine: note("killEngine"),
    startEngine: note("startEngine"),
    slowEngine: note("slowEngine"),
    loseEvents: note("loseEvents"),
    setReplay: note("setReplay"),
  };
  return { controls, calls };
}
