import type { CompiledConfig, FeedReport, FleetProbe, RouterStatus } from "@espalier/server";
import type { Dated } from "./check.ts";

/** A router that runs with this configuration. */
export interface RunningRouter {
  readonly adminUrl: string;
  readonly key: string | undefined;
  readonly status: RouterStatus;
  /** When it answered. */
  readonly at?: Dated;
}

type Settings = Readonly<Record<string, unknown>>;

/** What a running router knows. */
export interface RunningReport extends RunningRouter {
  readonly config: Settings;
  readonly feeds: readonly FeedReport[];
  /** Engines that take requests and answer none, at any router: why, by id. */
  readonly unresponsive: ReadonlyMap<string, string>;
  /** Engines that an RL framework paused. */
  readonly paused: ReadonlySet<string>;
  readonly peers: readonly PeerReport[];
}

/** Another router's answers, or why there are none. */
export interface PeerReport {
  /** `r2 at http://10.0.0.2:9090` */
  readonly name: string;
  readonly answer: { readonly version: string | null; readonly config: Settings; readonly at: Dated } | undefined;
  readonly error: unknown;
}

/** What the checks look at. */
export interface Examined {
  readonly config: CompiledConfig;
  readonly fleet: FleetProbe;
  /** Undefined where none runs. */
  readonly running: RunningReport | undefined;
  /** Whether that one runs on this machine, with the ports of the configuration. */
  readonly isHere: boolean;
  /** Files whose texts the configuration includes. */
  readonly secretFiles: readonly string[];
  readonly openFiles: number;
  readonly node: string;
  readonly version: string;
}
