import { readdirSync, readFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

const folder = "/proc/self/task";
/** What Node calls V8's threads. */
const threadName = "V8Worker";
/** Steps of Linux's priorities. With five less a thread gets a third of the time where there is too little for all. */
const steps = 5;
const lowestPriority = 19;

/**
 * Lets requests go before V8's own threads, which compile and collect garbage. In a router's first seconds two or three of
 * them have work all the time, and each takes as much of a core as the event loop. Does nothing outside Linux, where
 * threads have no priorities that a program may set.
 */
export function putEventLoopFirst(): void {
  if (process.platform !== "linux") return;
  for (const thread of readdirSync(folder)) {
    try {
      if (!readFileSync(`${folder}/${thread}/comm`, "latin1").includes(threadName)) continue;
      const id = Number(thread);
      setPriority(id, Math.min(lowestPriority, getPriority(id) + steps));
    } catch {
      // The thread has ended, or the sandbox allows no priorities.
    }
  }
}
