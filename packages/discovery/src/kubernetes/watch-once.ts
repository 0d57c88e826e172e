import type { Cancel, Scheduler } from "@espalier/common";
import { ApiFailure } from "./api-failure.ts";
import type { KubernetesClient } from "./kubernetes-client.ts";
import type { ObjectFold } from "./object-fold.ts";
import { parseWatchLine, type WatchEvent } from "./watch-event.ts";

/** After this long the server is asked to end a watch, so that one that has gone silent is told from a quiet one. */
const watchSeconds = 60;
/** A watch that has said nothing for this long, not even its end, is dead. */
const silenceMs = watchSeconds * 1_000 + 10_000;
/** How long a watch has to be open to be a good one. */
const settledMs = 5_000;

/** How a watch came to its end. */
export interface WatchEnd {
  /** Where the next watch goes on. Undefined: nowhere, a new list is needed. */
  readonly version: string | undefined;
  /** Undefined when the server ended it in order. */
  readonly failure: ApiFailure | undefined;
  /** Whether it had been open for a while: then it was a good one, whatever ended it. */
  readonly isSettled: boolean;
}

export interface WatchOnceOptions {
  readonly client: KubernetesClient;
  readonly scheduler: Scheduler;
  readonly path: string;
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly version: string;
  readonly fold: ObjectFold<unknown>;
  /** Called when it has become a good one. */
  onSettled(): void;
  /** Called after each piece of the answer, when the fold has what it brought. */
  onProgress(): void;
  /** @param event one that has just been folded; true to end the watch and list anew */
  needsList(event: WatchEvent): boolean;
}

/** One watch. Events go into the fold; the first line that cannot be read ends it. */
export function watchOnce(options: WatchOnceOptions): { readonly end: Promise<WatchEnd>; readonly cancel: Cancel } {
  const { client, scheduler, fold } = options;
  let isSettled = false;
  let version: string | undefined = options.version;
  let isOver = false;
  let cancelSilence: Cancel = () => {};
  let cancelSettling: Cancel = () => {};
  let cancelWatch: Cancel = () => {};
  let settle: (end: WatchEnd) => void = () => {};
  const end = new Promise<WatchEnd>((resolve) => {
    settle = resolve;
  });
  const finish = (failure: ApiFailure | undefined, goesOn = true): void => {
    if (isOver) return;
    isOver = true;
    cancelSilence();
    cancelSettling();
    cancelWatch();
    settle({ version: goesOn ? version : undefined, failure, isSettled });
  };
  const heard = (): void => {
    cancelSilence();
    cancelSilence = scheduler.after(silenceMs, () => finish(new ApiFailure(`nothing came for ${silenceMs} ms`), false));
  };
  const take = (line: string): void => {
    const event = parseWatchLine(line);
    if (!event) finish(new ApiFailure("a line of the watch is no event"));
    else if (event.kind === "error") {
      finish(new ApiFailure(`status ${event.status}: ${event.message}`, event.status), event.status !== 410);
    } else {
      version = event.kind === "bookmark" ? event.version : event.object.version;
      if (event.kind === "set") fold.set(event.object);
      else if (event.kind === "deleted") fold.delete(event.object.name);
      if (options.needsList(event)) finish(undefined, false);
    }
  };

  heard();
  const query = new URLSearchParams({
    ...options.parameters,
    watch: "1",
    allowWatchBookmarks: "true",
    timeoutSeconds: String(watchSeconds),
    resourceVersion: options.version,
  });
  cancelWatch = client.watch(`${options.path}?${query}`, {
    onOpen() {
      cancelSettling = scheduler.after(settledMs, () => {
        isSettled = true;
        options.onSettled();
      });
    },
    onLines(lines) {
      heard();
      for (const line of lines) if (!isOver) take(line);
      options.onProgress();
    },
    onEnd: (failure) => finish(failure, failure?.status !== 410),
  });
  return { end, cancel: () => finish(undefined) };
}
