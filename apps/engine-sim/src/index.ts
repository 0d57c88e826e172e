/** Simulated engines: engine-model behind a vLLM-compatible HTTP server. */
export {};
