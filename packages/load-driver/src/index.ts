/** Drives requests at OpenAI-compatible HTTP endpoints, in open or closed loops, and measures what a client sees. */
export { type Job, type LoopPorts, runClosedLoop, runOpenLoop, type TimedJob } from "./loops.ts";
export { type Answer, createLoadClient, type LoadClient, type LoadRequest } from "./send-request.ts";
export { type AnswerReader, type AnswerReading, createAnswerReader } from "./stream-reader.ts";
