/** Drives requests at OpenAI-compatible HTTP endpoints, in open or closed loops, and measures what a client sees. */

export {
  type Answer,
  type AnswerReader,
  type AnswerReading,
  createAnswerReader,
  createLoadClient,
  type LoadClient,
  type LoadRequest,
} from "./load-client.ts";
export { type Job, type LoopPorts, runClosedLoop, runOpenLoop, type TimedJob } from "./loops.ts";
