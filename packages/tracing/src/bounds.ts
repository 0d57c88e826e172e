/** Spans that wait to be sent; further ones are dropped. About 300 requests' worth. */
export const maxQueuedSpans = 2_048;
/** Spans in one batch: a batch is made into text in one go, and no request should wait for that for long. */
export const batchSpans = 64;
/** How long a span waits for others at most. */
export const sendEveryMs = 1_000;
/** For one batch, with what is tried again; less than `flushMs`, so that nothing of it outlives the router. */
export const exportTimeoutMs = 2_000;
/** How long the end of a router waits for the last spans. */
export const flushMs = 3_000;
/** Of one span; a longer value is cut, further ones are left out. */
export const maxAttributeLength = 256;
export const maxAttributes = 64;
export const maxEvents = 32;
/** Failed requests that were not recorded and are kept all the same, in a second: an outage fails thousands alike. */
export const maxKeptPerSecond = 10;
