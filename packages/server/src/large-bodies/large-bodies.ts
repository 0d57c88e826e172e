import { isUtf8 } from "node:buffer";
import { type Endpoint, type RequestView, type Span, scanRequest } from "@espalier/api";
import {
  type ErrorCode,
  EspalierError,
  JsonBody,
  type Logger,
  programUrl,
  type Scheduler,
  type Startable,
  scanBody,
} from "@espalier/core";
import { type ChatDialect, createPoolThread, type PoolThread, type PromptView } from "@espalier/tokenizer";
import type { ForwardedBody } from "./read-forwarded-body.ts";

/**
 * Longer bodies may be read in a worker thread, and always are when only their bytes are known. Reading a body of many
 * small values on the event loop takes up to 60 ns per byte.
 */
export const largeBodyBytes = 128 * 1_024;
/** Largest body that is read on the event loop; scanning it takes a few milliseconds. */
export const maxInlineBytes = 1_048_576;
/** Values of a large body that is read on the event loop. */
const maxInlineValues = 16_384;
/** Most milliseconds for one body; beyond it the thread is killed. */
const maxTaskMs = 30_000;

/**
 * Scans a request on the event loop if that is quick. An agent's prompt is a few thousand texts in several 100 KB,
 * which would take longer to pass to a thread and back.
 *
 * @returns undefined when the thread has to read it
 * @throws EspalierError as `scanRequest` does, for a body that is not large
 */
export function scanInline(bytes: Buffer, maxDepth: number): JsonBody | undefined {
  if (bytes.length <= largeBodyBytes) return scanRequest(bytes, { maxDepth });
  if (bytes.length > maxInlineBytes || !isUtf8(bytes)) return undefined;
  const body = scanBody(bytes, maxDepth);
  return typeof body === "string" || body.valueCount > maxInlineValues ? undefined : body;
}

/** A large body as read by the thread. */
interface LargeRequest {
  /** Its `body` is an outline: all members, without large values. */
  readonly view: RequestView;
  /** @throws Error when the thread ends */
  readonly readPrompt: ReadPrompt;
}

export type ReadPrompt = (terms: PromptTerms) => Promise<PromptView>;

/** Reads bodies one at a time in a thread that starts with the first. */
export interface LargeBodies extends Startable {
  /** @throws EspalierError as `readRequestView` does, and `reserved_field` */
  read(endpoint: Endpoint, bytes: Buffer, rules: ReadingRules): Promise<LargeRequest>;
  /** Does what `readForwardedBody` does. */
  readForwarded(bytes: Buffer, forwarded: ForwardedBody): Promise<string | undefined>;
  /**
   * Which of these fields (ASCII names) a body has; none for a body that is not an object.
   *
   * @throws EspalierError `invalid_json`
   */
  readFields(bytes: Buffer, names: readonly string[]): Promise<readonly string[]>;
}

interface LargeBodiesOptions {
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  /** The thread's program; the built one by default. */
  readonly program?: URL;
}

type Thread = PoolThread<BodyTask, BodyResult>;

export function createLargeBodies({
  scheduler,
  logger,
  program = programUrl("./large-body-worker", import.meta.url),
}: LargeBodiesOptions): LargeBodies {
  let thread: Thread | undefined;
  let turn: Promise<unknown> = Promise.resolve();
  let bodies = 0;

  const started = (): Thread => {
    const onEnd = (reason: string): void => {
      thread = undefined;
      logger.warn("thread for large bodies exited; the next large body restarts it", { reason });
    };
    thread ??= createPoolThread<BodyTask, BodyResult>(program, onEnd, "body");
    return thread;
  };
  const run = async (task: BodyTask): Promise<BodyResult> => {
    const running = started();
    const cancel = scheduler.after(maxTaskMs, () => running.kill());
    try {
      const result = await running.run(task);
      if (result.kind === "refused") throw new EspalierError(result.code, result.message, refusalDetails(result));
      return result;
    } finally {
      cancel();
    }
  };
  /** Runs a task after all earlier ones. */
  const inTurn = <Kind extends BodyResult["kind"]>(task: BodyTask & { readonly job: { readonly kind: Kind } }) => {
    const result = turn.then(() => run(task)) as Promise<Extract<BodyResult, { readonly kind: Kind }>>;
    turn = result.catch(() => undefined);
    return result;
  };
  return {
    start: () => Promise.resolve(),
    async stop() {
      await thread?.stop();
      thread = undefined;
    },
    async read(endpoint, received, rules) {
      const bytes = inSharedMemory(received);
      const bodyId = bodies++;
      const { view } = await inTurn({ bodyId, bytes, job: { kind: "read", path: endpoint.path, rules } });
      return {
        view: viewOf(endpoint, view),
        async readPrompt(terms) {
          const job = { kind: "prompt", endpoint: endpoint.id, terms } as const;
          return (await inTurn({ bodyId, bytes, job })).prompt;
        },
      };
    },
    async readForwarded(received, forwarded) {
      const bytes = inSharedMemory(received);
      return (await inTurn({ bodyId: bodies++, bytes, job: { kind: "model", forwarded } })).model;
    },
    async readFields(received, names) {
      const bytes = inSharedMemory(received);
      return (await inTurn({ bodyId: bodies++, bytes, job: { kind: "fields", names } })).names;
    },
  };
}

const refusalDetails = ({ param }: { readonly param: string | undefined }) => (param === undefined ? {} : { param });

function viewOf(endpoint: Endpoint, { frame, spans, ...view }: PlainView): RequestView {
  const body = new JsonBody(Buffer.from(frame.buffer, frame.byteOffset, frame.byteLength));
  return { ...view, endpoint, body, spans: new Map(spans) };
}

/** Clients' large bodies are in shared memory already. */
function inSharedMemory(bytes: Buffer): Uint8Array {
  if ((bytes.buffer as unknown) instanceof SharedArrayBuffer) return bytes;
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
  shared.set(bytes);
  return shared;
}

/** Rules for reading a body. */
export interface ReadingRules {
  /** Most levels of nesting. */
  readonly maxDepth: number;
  readonly trustsTransferFields: boolean;
}

/** How a prompt is cut into blocks. */
export interface PromptTerms {
  /** Folder of the model's files; undefined to hash bytes instead of tokens. */
  readonly folder: string | undefined;
  readonly dialect: ChatDialect;
  /** Tokens per block. */
  readonly blockSize: number;
  /** Most bytes of the tokenizer's caches. */
  readonly cacheBytes: number;
}

/** A task for the thread. */
export interface BodyTask {
  /** Identifies the body, so that the thread recognises the one it read last. */
  readonly bodyId: number;
  /** In shared memory, which avoids a copy. */
  readonly bytes: Uint8Array;
  readonly job:
    | { readonly kind: "read"; readonly path: string; readonly rules: ReadingRules }
    | { readonly kind: "prompt"; readonly endpoint: string; readonly terms: PromptTerms }
    | { readonly kind: "model"; readonly forwarded: ForwardedBody }
    | { readonly kind: "fields"; readonly names: readonly string[] };
}

/** A view in the form that threads exchange. */
export interface PlainView extends Omit<RequestView, "endpoint" | "body" | "spans"> {
  /** The object without its large values, as JSON. */
  readonly frame: Uint8Array;
  readonly spans: readonly (readonly [name: string, span: Span])[];
}

/** The thread's result. */
export type BodyResult =
  | { readonly kind: "refused"; readonly code: ErrorCode; readonly message: string; readonly param: string | undefined }
  | { readonly kind: "read"; readonly view: PlainView }
  | { readonly kind: "prompt"; readonly prompt: PromptView }
  | { readonly kind: "model"; readonly model: string | undefined }
  | { readonly kind: "fields"; readonly names: readonly string[] };
