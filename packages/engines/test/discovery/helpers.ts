import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  asEngineId,
  type EngineSpec,
  type EngineTraits,
  EspalierError,
  type Scheduler,
  systemScheduler,
} from "@espalier/core";
import { onTestFinished } from "vitest";
import type { EngineSource, InferenceObject, SourceObserver } from "../../src/discovery/index.ts";

export const engine = (id: string, url = `http://${id}:8000`): EngineSpec => ({
  id: asEngineId(id),
  url,
  models: [],
  role: "both",
  weight: 1,
  labels: {},
});

/** A parser of lists like `a b c`; a question mark is a syntax error. */
export function parseIds(text: string, path: string): readonly EngineSpec[] {
  if (text.includes("?")) throw new EspalierError("config_invalid", `${path}: question mark`);
  return text
    .split(/\s+/)
    .filter((id) => id !== "")
    .map((id) => engine(id));
}

const idsOf = (specs: readonly EngineSpec[]): string => specs.map(({ id }) => id).join(" ");

/** Observes a source, or several. */
export interface Recorder<Entry = EngineSpec> extends SourceObserver<Entry> {
  onConflict(error: EspalierError): void;
  /** Each list as its ids, or what else stands for its entries, `a b c`. */
  readonly lists: string[];
  readonly specs: Entry[][];
  readonly errors: EspalierError[];
  readonly conflicts: EspalierError[];
  readonly recoveries: number;
  onFollowed(source: string): void;
  onLeft(source: string): void;
  /** `+ NAME` and `- NAME` as sources begin to count and cease to. */
  readonly changes: string[];
}

/** Keeps everything that it is told. */
export const createRecorder = (): Recorder => createRecorderOf(idsOf);

/** The same, of a source of other routers. */
export const createPeerRecorder = (): Recorder<string> => createRecorderOf((list) => list.join(" "));

/** The same, of inference objects: `objective=1`, and `rewrite:model>target`, with `*` for all models. */
export const createObjectRecorder = (): Recorder<InferenceObject> =>
  createRecorderOf((list) => list.map(shownObject).join(" "));

function shownObject(object: InferenceObject): string {
  if (object.kind === "objective") return `${object.name}=${object.priority}`;
  const rules = object.rules.map(({ models, targets }) => {
    const [from, to] = [models.join("+") || "*", targets.map(({ model }) => model).join("+")];
    return `${from}>${to}`;
  });
  return `${object.name}:${rules.join(",")}`;
}

function createRecorderOf<Entry>(show: (list: readonly Entry[]) => string): Recorder<Entry> {
  const lists: string[] = [];
  const specs: Entry[][] = [];
  const errors: EspalierError[] = [];
  const conflicts: EspalierError[] = [];
  const changes: string[] = [];
  let recoveries = 0;
  return {
    lists,
    specs,
    errors,
    conflicts,
    changes,
    onFollowed: (source) => changes.push(`+ ${source}`),
    onLeft: (source) => changes.push(`- ${source}`),
    get recoveries() {
      return recoveries;
    },
    onList(given) {
      lists.push(show(given));
      specs.push([...given]);
    },
    onError: (error) => errors.push(error),
    onConflict: (error) => conflicts.push(error),
    onRecovered() {
      recoveries += 1;
    },
  };
}

/** What a source says of engines when it is not told to say anything. */
export const plainTraits: EngineTraits = {
  scheme: "http",
  models: [],
  role: "both",
  weight: 1,
  ranks: 1,
  firstRank: undefined,
  labels: {},
  region: undefined,
  kvEventsPort: undefined,
  kvReplayPort: undefined,
  kvTopic: "",
  kvTransfer: undefined,
  kvTransferPort: undefined,
  kvPull: undefined,
  kvPullPort: undefined,
};

/** Real timers without the periodic ones, so that only the watcher can notice a change. */
export const withoutPolling: Scheduler = { after: systemScheduler.after, every: () => () => {} };

/** A folder that is removed when the test ends. */
export async function createFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "espalier-discovery-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** What a promise is rejected with. */
export async function rejectionOf(promise: Promise<unknown>): Promise<EspalierError> {
  const outcome = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (outcome instanceof EspalierError) return outcome;
  throw new Error("not rejected with an EspalierError", { cause: outcome });
}

/** A source that gives what the test tells it to. */
export function createManualSource(name: string, first: string, journal: string[] = []) {
  let observer: SourceObserver | undefined;
  const source: EngineSource = {
    name,
    async start(given) {
      journal.push(`start ${name}`);
      observer = given;
      given.onList(parseIds(first, name));
    },
    async stop() {
      journal.push(`stop ${name}`);
    },
  };
  return {
    source,
    give: (ids: string) => observer?.onList(parseIds(ids, name)),
    fail: (error: EspalierError) => observer?.onError(error),
    recover: () => observer?.onRecovered(),
  };
}

/** A source that cannot be started. */
export const failingSource = (name: string, journal: string[]): EngineSource => ({
  name,
  async start() {
    throw new EspalierError("config_unreadable", `${name} cannot be read`);
  },
  async stop() {
    journal.push(`stop ${name}`);
  },
});
