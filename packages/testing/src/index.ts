/**
 * What tests share: virtual time, a network in memory, a recording logger, waiting with a deadline, a name server, an API server, an authority
 * for certificates, a Redis server, changed bytes for decoders, and where real captures are.
 */
export { type Authority, type Certificate, createAuthority, hasOpenssl } from "./authority.ts";
export { certificate, privateKey } from "./certificate.ts";
export { fixedSeeds, randomRuns } from "./depth.ts";
export type { DnsRecords } from "./dns-message.ts";
export { type DnsMode, type DnsServer, startDnsServer } from "./dns-server.ts";
export { freePort } from "./free-port.ts";
export { type FuzzRun, fuzzDecoder } from "./fuzz/fuzz-decoder.ts";
export { type DeclareTest, fuzzInFile } from "./fuzz/fuzz-in-file.ts";
export type { FuzzReport } from "./fuzz/fuzz-request.ts";
export type { FuzzTarget } from "./fuzz/fuzz-target.ts";
export { maxCaseBytes, mutateBytes } from "./fuzz/mutate-bytes.ts";
export { createHttpEngines, type Engine, type HttpEngine, type HttpEngines, type SeenRequest } from "./http-engines.ts";
export { kernelModule } from "./kernel-module.ts";
export { type ApiFault, type ApiObject, createKubernetesApi, type KubernetesApi } from "./kubernetes-api.ts";
export { createMemoryNetwork, type MemoryNetwork } from "./memory-network/memory-network.ts";
export { createRecordingLogger, type LogLine } from "./recording-logger.ts";
export { hasRedisServer, type RedisServer, startRedisServer } from "./redis-server.ts";
export { schedulerOf } from "./scheduler-of.ts";
export { createSeriesMeter, type SeriesMeter } from "./series-meter.ts";
export { sharedPath } from "./shared-folder.ts";
export { maxPendingTasks, TimerHeap } from "./timer-heap.ts";
export { createVirtualTime, type VirtualTime } from "./virtual-time.ts";
export { type WaitOptions, waitFor } from "./wait-for.ts";
