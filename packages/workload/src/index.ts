/** Traces, prompt synthesis, arrival processes and result summaries. */
export {};
