/** Drives requests at OpenAI-compatible HTTP endpoints, in open or closed loops, and measures what a client sees. */

export { type Answer, createAnswerReader, createLoadClient, type LoadClient, type LoadRequest } from "./load-client.ts";
export { runClosedLoop, runOpenLoop, type TimedJob } from "./loops.ts";
