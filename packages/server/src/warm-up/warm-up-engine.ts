import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Startable, systemAfterPoll } from "@espalier/common";

/** An engine that costs next to nothing, for as long as a router warms up. */
export interface WarmUpEngine extends Startable {
  /** Empty before the start. */
  readonly url: string;
}

export const warmUpModel = "warm-up";
/** Pieces of a streamed answer, each sent in a turn of its own as an engine sends tokens. */
const chunks = 16;

const usage = { prompt_tokens: 64, completion_tokens: chunks, total_tokens: 64 + chunks };
const whole = JSON.stringify({
  id: "warm-up",
  object: "chat.completion",
  model: warmUpModel,
  choices: [{ index: 0, message: { role: "assistant", content: "warm" }, finish_reason: "stop" }],
  usage,
});
const piece = eventOf({ choices: [{ index: 0, delta: { content: "warm" }, finish_reason: null }] });
const last = `${eventOf({ choices: [], usage })}data: [DONE]\n\n`;

function eventOf(fields: object): string {
  return `data: ${JSON.stringify({ id: "warm-up", object: "chat.completion.chunk", model: warmUpModel, ...fields })}\n\n`;
}

/** Listens on a free port of a loopback address. */
export function createWarmUpEngine(): WarmUpEngine {
  const server = createServer(serve);
  let url = "";
  return {
    get url() {
      return url;
    },
    start: () =>
      new Promise((resolve, reject) => {
        server.once("error", reject);
        server.listen({ host: "127.0.0.1", port: 0, exclusive: true }, () => {
          url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
          resolve();
        });
      }),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function serve(request: IncomingMessage, response: ServerResponse): void {
  let isStreamed = false;
  request.on("data", (data: Buffer) => {
    isStreamed ||= data.includes('"stream":true');
  });
  request.once("end", () => {
    if (isStreamed) void stream(response);
    else response.writeHead(200, { "content-type": "application/json" }).end(whole);
  });
}

async function stream(response: ServerResponse): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (let sent = 0; sent < chunks && !response.destroyed; sent++) {
    response.write(piece);
    await systemAfterPoll();
  }
  response.end(last);
}
