import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Cancel, createSeededRandom, EspalierError, type HttpResponse, type Scheduler } from "@espalier/core";
import {
  type ApiObject,
  createKubernetesApi,
  createRecordingLogger,
  createVirtualTime,
  type KubernetesApi,
} from "@espalier/testing";
import { onTestFinished } from "vitest";
import {
  createKubernetesClient,
  type EngineSource,
  type InferenceObject,
  type KubernetesAccess,
  type KubernetesPorts,
  type KubernetesTransport,
  type PeerSource,
  type Source,
} from "../../../src/discovery/index.ts";
import { createObjectRecorder, createPeerRecorder, createRecorder, type Recorder } from "../helpers.ts";

export const sliceCollection = "/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices";
export const podCollection = "/api/v1/namespaces/ai/pods";
export const poolCollection = "/apis/inference.networking.k8s.io/v1/namespaces/ai/inferencepools";
export const alphaPoolCollection = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/ai/inferencepools";

/** Reaches a fake API server without sockets. Answers come when promises settle. */
function connectTo(api: KubernetesApi, scheduler: Scheduler): KubernetesTransport {
  return {
    request: ({ url, headers = {}, timeoutMs, maxBytes }) =>
      new Promise((resolve, reject) => {
        const answer = { status: 0, headers: {}, body: "" } satisfies HttpResponse;
        const cancel = scheduler.after(timeoutMs, () => reject(new EspalierError("upstream_timeout")));
        const settle = (action: () => void): void => {
          cancel();
          queueMicrotask(action);
        };
        api.answer(url, headers, {
          head: (status, given) => Object.assign(answer, { status, headers: given }),
          data(text) {
            answer.body += text;
          },
          end: () =>
            settle(() => {
              if (Buffer.byteLength(answer.body) <= maxBytes) resolve(answer);
              else reject(new EspalierError("upstream_protocol_error", `The answer is longer than ${maxBytes} bytes.`));
            }),
          drop: () => settle(() => reject(new EspalierError("upstream_connect_failed"))),
        });
      }),
    stream({ url, headers = {}, headTimeoutMs }, observer) {
      let isOver = false;
      const later = (action: () => void, isLast = false): void =>
        queueMicrotask(() => {
          if (isOver) return;
          isOver = isLast;
          action();
        });
      const cancelTimeout: Cancel = scheduler.after(headTimeoutMs, () =>
        later(() => observer.onEnd(new EspalierError("upstream_timeout")), true),
      );
      const gone = api.answer(url, headers, {
        head(status, given) {
          cancelTimeout();
          later(() => observer.onHead(status, given));
        },
        data: (text) => later(() => observer.onData(Buffer.from(text))),
        end: () => later(() => observer.onEnd(undefined), true),
        drop() {
          cancelTimeout();
          later(() => observer.onEnd(new EspalierError("upstream_connect_failed")), true);
        },
      });
      return () => {
        isOver = true;
        cancelTimeout();
        gone();
      };
    },
    close() {},
  };
}

/** A fake API server, virtual time, and a source that follows it. */
export const createKubernetesRig = (
  createSource: (ports: KubernetesPorts, logger: ReturnType<typeof createRecordingLogger>) => EngineSource,
  access: Partial<KubernetesAccess> = {},
) => createRigOf(createRecorder(), createSource, access);

/** The same with a source of other routers. */
export const createPeerRig = (createSource: (ports: KubernetesPorts) => PeerSource) =>
  createRigOf(createPeerRecorder(), createSource);

/** The same with a source of inference objects. */
export const createInferenceObjectRig = (
  createSource: (ports: KubernetesPorts, logger: ReturnType<typeof createRecordingLogger>) => Source<InferenceObject>,
) => createRigOf(createObjectRecorder(), createSource);

function createRigOf<Entry>(
  recorder: Recorder<Entry>,
  createSource: (ports: KubernetesPorts, logger: ReturnType<typeof createRecordingLogger>) => Source<Entry>,
  access: Partial<KubernetesAccess> = {},
) {
  const api = createKubernetesApi();
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  /** The certificates of each transport that was opened. */
  const connects: (string | undefined)[] = [];
  const client = createKubernetesClient({
    access: { apiServer: "http://api", tokenFile: undefined, caFile: undefined, ...access },
    connect(ca) {
      connects.push(ca);
      return connectTo(api, time.scheduler);
    },
  });
  const source = createSource({ client, ...time, random: createSeededRandom(1) }, logger);
  onTestFinished(async () => {
    await source.stop();
    client.close();
  });
  const settle = (durationMs = 0): Promise<void> => time.advanceAsync(durationMs);
  return {
    ...{ api, time, recorder, logger, source, connects, settle },
    /** Starts it and lets time pass until it has; none at all when what it waits for happens in real time. */
    async start(stepMs = 100): Promise<void> {
      let isStarted = false;
      void source.start(recorder).then(() => {
        isStarted = true;
      });
      while (!isStarted) await settle(stepMs);
    },
    messages: () => recorder.errors.map(({ message }) => message),
    /** The only watch of a collection. */
    watch(collection: string) {
      const [only, ...others] = [...api.watches].filter(({ request }) => request.path === collection);
      if (!only || others.length > 0) throw new Error(`${others.length + (only ? 1 : 0)} watches of ${collection}`);
      return only;
    },
    count: (kind: "list" | "watch", path: string) =>
      api.requests.filter((request) => request.kind === kind && request.path === path).length,
  };
}

/** An EndpointSlice of the service `vllm` with IPv4 endpoints that are ready. */
export function slice(
  name: string,
  addresses: readonly string[],
  more: Readonly<Record<string, unknown>> = {},
): ApiObject {
  return {
    metadata: { name, labels: { "kubernetes.io/service-name": "vllm" } },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8_000, protocol: "TCP" }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
    ...more,
  };
}

export interface PodOptions {
  readonly ip?: string;
  readonly ready?: boolean;
  readonly phase?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly spec?: Readonly<Record<string, unknown>>;
}

/** A pod with the label `app: vllm` that runs and is ready. */
export function pod(name: string, { ip, ready = true, phase = "Running", ...more }: PodOptions = {}): ApiObject {
  const { labels = {}, annotations = {}, metadata = {}, spec = {} } = more;
  return {
    metadata: { name, namespace: "ai", labels: { app: "vllm", ...labels }, annotations, ...metadata },
    spec: { nodeName: "node-1", containers: [{ ports: [{ name: "http", containerPort: 8_000 }] }], ...spec },
    status: {
      phase,
      ...(ip === undefined ? {} : { podIP: ip }),
      conditions: [{ type: "Ready", status: ready ? "True" : "False" }],
    },
  };
}

/** Files of a service account, as Kubernetes mounts them. */
export async function serviceAccount(files: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(join(tmpdir(), "espalier-account-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const write = (name: string, text: string): Promise<void> => writeFile(join(folder, name), text);
  for (const [name, text] of Object.entries(files)) await write(name, text);
  return { write, path: (name: string) => join(folder, name) };
}
