/**
 * Shared test tools: virtual time, prompts, an in-memory network, recording loggers and meters, waiting with a deadline, test
 * servers for engines, DNS, the Kubernetes API and Redis, certificates, a fuzzer for decoders, and the location of real
 * captures.
 */
export { captureFolders, livePayloads, replayedPayloads } from "./captured-events.ts";
export {
  type Authority,
  type Certificate,
  certificate,
  createAuthority,
  hasOpenssl,
  privateKey,
} from "./certificates.ts";
export { type DnsServer, startDnsServer } from "./dns-server.ts";
export { type FuzzTarget, fuzzDecoder, fuzzInFile, seedsInHex } from "./fuzz-decoder.ts";
export { createHttpEngines, type Engine } from "./http-engines.ts";
export { kernelModule } from "./kernel-module.ts";
export { type ApiObject, createKubernetesApi, type KubernetesApi } from "./kubernetes-api.ts";
export { createMemoryNetwork, type MemoryNetwork } from "./memory-network.ts";
export { maxCaseBytes, mutateBytes } from "./mutate-bytes.ts";
export { blockSize, joinTokens, promptDigests, promptOf, tokensOf } from "./prompts.ts";
export {
  type CountingMeter,
  createCountingMeter,
  createRecordingLogger,
  createSeriesMeter,
  type LogLine,
  type SeriesMeter,
} from "./recorders.ts";
export { hasRedisServer, type RedisServer, startRedisServer } from "./redis-server.ts";
export { fixedSeeds, freePort, randomRuns, sharedPath, waitFor } from "./test-environment.ts";
export { createVirtualTime, maxPendingTasks, schedulerOf, TimerHeap, type VirtualTime } from "./virtual-time.ts";
