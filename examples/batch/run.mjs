// Runs a file of OpenAI's Batch API through a router, in its lowest class, with a bounded number of requests at once:
//   ROUTER=http://127.0.0.1:8080 node examples/batch/run.mjs input.jsonl output.jsonl
// Lines that the output has already are not sent again, so a run that was stopped goes on where it ended.
import { createReadStream, createWriteStream, existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const { ROUTER = "http://127.0.0.1:8080", KEY, CONCURRENCY = "16", ATTEMPTS = "20" } = process.env;
const [input, output] = process.argv.slice(2);
const linesOf = (path) => createInterface({ input: createReadStream(path), crlfDelay: Infinity });

const done = new Set();
if (existsSync(output)) {
  for await (const line of linesOf(output)) {
    // The last line may have been cut.
    if (line.endsWith("}")) done.add(JSON.parse(line).custom_id);
  }
}
const results = createWriteStream(output, { flags: "a" });

async function send({ method, url, body }) {
  const headers = { "content-type": "application/json", ...(KEY && { authorization: `Bearer ${KEY}` }) };
  for (let attempt = 1; ; attempt++) {
    const sent = { method, headers, body: JSON.stringify({ service_tier: "flex", ...body }) };
    const answer = await fetch(ROUTER + url, sent).catch((error) => error);
    const isBusy = answer instanceof Error || answer.status === 429 || answer.status === 503;
    if (!isBusy || attempt >= Number(ATTEMPTS)) {
      if (answer instanceof Error) return { response: null, error: { code: "unreachable", message: String(answer) } };
      const request_id = answer.headers.get("x-request-id");
      return { response: { status_code: answer.status, request_id, body: await answer.json() }, error: null };
    }
    await pause(1_000 * Number(answer.headers?.get("retry-after") ?? Math.min(attempt, 10)));
  }
}

const running = new Set();
for await (const line of linesOf(input)) {
  const request = line.trim() === "" ? undefined : JSON.parse(line);
  if (!request || done.has(request.custom_id)) continue;
  const task = send(request)
    .catch((error) => ({ response: null, error: { code: "failed", message: String(error) } }))
    .then((result) => results.write(`${JSON.stringify({ custom_id: request.custom_id, ...result })}\n`))
    .finally(() => running.delete(task));
  running.add(task);
  if (running.size >= Number(CONCURRENCY)) await Promise.race(running);
}
await Promise.all(running);
results.end();
