/** What can be done to a simulated fleet while it runs. Routers and engines by number, from 0. */
export interface FleetControls {
  readonly routerCount: number;
  readonly engineCount: number;
  /** Groups of routers hear nothing of each other. */
  partition(groups: readonly (readonly number[])[]): void;
  /** Nothing gets from one router to another; the other direction is left. */
  cutLink(from: number, to: number): void;
  mendLink(from: number, to: number): void;
  /** Breaks the connections between two routers; they may dial again. */
  resetLink(one: number, other: number): void;
  /** Of all links between routers. */
  setLinkSpeed(speed: { readonly delayMs: number; readonly jitterMs: number }): void;
  /** Undoes partitions, cuts and pauses, and loses no more events; speeds, dead routers and dead engines stay. */
  heal(): void;
  isRouterUp(router: number): boolean;
  /** Its process is gone without a word. Requests through it fail. */
  killRouter(router: number): void;
  /** It says goodbye and ends; requests through it are answered before. */
  leaveRouter(router: number): void;
  /** A new life of a router that ended, under its id. */
  startRouter(router: number): void;
  /** SIGSTOP and SIGCONT. */
  pauseRouter(router: number): void;
  resumeRouter(router: number): void;
  /** Its wall clock is off by so much more. */
  jumpClock(router: number, byMs: number): void;
  /** Its clocks run so much faster, as a share: 0.001 is a millisecond a second. */
  setDrift(router: number, rate: number): void;
  isEngineUp(engine: number): boolean;
  /** Its process is gone, and its cache; requests in it fail. */
  killEngine(engine: number): void;
  /** A new life of an engine, empty. */
  startEngine(engine: number): void;
  /** Its steps take so many times as long from now on, in its later lives too; 1 is as at first. */
  slowEngine(engine: number, factor: number): void;
  /** The next messages of KV events reach no reader, unless they are replayed. */
  loseEvents(engine: number, messages: number): void;
  /** Whether the engine tells what a reader missed. */
  setReplay(engine: number, isOn: boolean): void;
}
