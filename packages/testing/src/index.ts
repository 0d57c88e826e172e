/** What tests share: virtual time, a recording logger, waiting with a deadline, and where real captures are. */
export { createRecordingLogger, type LogLine } from "./recording-logger.ts";
export { schedulerOf } from "./scheduler-of.ts";
export { createSeriesMeter, type SeriesMeter } from "./series-meter.ts";
export { sharedPath } from "./shared-folder.ts";
export { maxPendingTasks, TimerHeap } from "./timer-heap.ts";
export { createVirtualTime, type VirtualTime } from "./virtual-time.ts";
export { type WaitOptions, waitFor } from "./wait-for.ts";
