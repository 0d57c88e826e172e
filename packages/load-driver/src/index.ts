/** Drives requests at OpenAI-compatible HTTP endpoints, open or closed loop, and measures them. */
export {};
