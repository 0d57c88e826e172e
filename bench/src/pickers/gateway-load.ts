import type { Clock } from "@espalier/core";
import { bodyModes, type HeaderValue, type ProcessingRequest } from "@espalier/server";
import { connectGateway, type GatewayClient } from "@espalier/server/gateway-client";
import { chatAnswer } from "../data-path/engine-bytes.ts";
import type { Extent } from "../data-path/measure-load.ts";
import { type PreparedRequest, stampSerial } from "../data-path/prepared-request.ts";
import { readTreeUsage } from "../support/process-tree.ts";

/** A picker that is asked without a gateway. */
export interface AskedPicker {
  /** `host:port`. */
  readonly address: string;
  readonly pid: number;
}

export interface GatewayLoad {
  readonly request: PreparedRequest;
  /** Requests at a time. */
  readonly concurrency: number;
  readonly warmUp: Extent;
  readonly extent: Extent;
  readonly clock: Clock;
}

export interface GatewayMeasurement {
  readonly requestsPerSecond: number;
  readonly cpuMicrosPerRequest: number;
}

/** As Envoy cuts a body that it streams. */
const pieceBytes = 16_384;
const headEnd = "\r\n\r\n";
/** Apart from those of `measureLoad` in the same process. */
let nextSerial = 500_000_000_000;

/**
 * Asks a picker as Envoy does that shows it everything: request and answer pass through it in pieces, and the stream is reset
 * at the end. The engine's answer is made up here. This process costs more than the picker, so it decides the rate.
 *
 * @throws Error when the picker names no engine, or changes the length of a body
 */
export async function measureAlone(picker: AskedPicker, load: GatewayLoad): Promise<GatewayMeasurement> {
  const client = connectGateway(picker.address);
  try {
    await send(client, load, load.warmUp);
    const before = readTreeUsage(picker.pid).cpuSeconds;
    const startMs = load.clock.nowMs();
    const requests = await send(client, load, load.extent);
    const seconds = (load.clock.nowMs() - startMs) / 1_000;
    const spentSeconds = readTreeUsage(picker.pid).cpuSeconds - before;
    return { requestsPerSecond: requests / seconds, cpuMicrosPerRequest: (spentSeconds * 1e6) / requests };
  } finally {
    client.close();
  }
}

/** @returns how many were sent */
async function send(client: GatewayClient, { request, concurrency, clock }: GatewayLoad, extent: Extent) {
  const bodyAt = request.bytes.indexOf(headEnd) + headEnd.length;
  const head = requestHead(request.bytes.toString("latin1", 0, bodyAt - headEnd.length));
  const endMs = "durationMs" in extent ? clock.nowMs() + extent.durationMs : Number.POSITIVE_INFINITY;
  const most = "requests" in extent ? extent.requests : Number.POSITIVE_INFINITY;
  let sent = 0;
  const work = async (): Promise<void> => {
    while (sent < most && clock.nowMs() < endMs) {
      sent += 1;
      const bytes = Buffer.from(request.bytes);
      stampSerial(bytes, request.serialAt, nextSerial++);
      await exchange(client, head, bytes.subarray(bodyAt));
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  return sent;
}

async function exchange(client: GatewayClient, head: ProcessingRequest, body: Buffer): Promise<void> {
  const stream = client.open();
  stream.send(head);
  for (let from = 0; from < body.length; from += pieceBytes) {
    stream.send({ requestBody: { body: body.subarray(from, from + pieceBytes) } });
  }
  stream.send({ requestBody: { endOfStream: true } });
  const next = async () => {
    const message = await stream.receive();
    if (!message || message.immediateResponse) {
      throw new Error(`the picker answered ${JSON.stringify(message ?? "nothing")}, and named no engine`);
    }
    return message;
  };
  const fields = (await next()).dynamicMetadata?.fields?.["envoy.lb"]?.structValue?.fields;
  const served = fields?.["x-gateway-destination-endpoint"]?.stringValue?.split(",")[0] ?? "";
  for (let size = 0; ; ) {
    const piece = (await next()).requestBody?.response?.bodyMutation?.streamedResponse;
    size += piece?.body?.length ?? 0;
    if (!piece?.endOfStream) continue;
    if (size === body.length) break;
    throw new Error(`the picker made ${size} bytes of a body of ${body.length}`);
  }
  const metadata = { fields: { "x-gateway-destination-endpoint-served": { stringValue: served } } };
  stream.send({ ...answerHead, metadataContext: { filterMetadata: { "envoy.lb": metadata } } });
  await next();
  stream.send({ responseBody: { body: answerBody } });
  stream.send({ responseBody: { endOfStream: true } });
  while (!(await next()).responseBody?.response?.bodyMutation?.streamedResponse?.endOfStream);
  stream.cancel();
}

const answerBodyAt = chatAnswer.indexOf(headEnd) + headEnd.length;
const answerBody = chatAnswer.subarray(answerBodyAt);
const answerHead: ProcessingRequest = {
  responseHeaders: {
    headers: { headers: [pair(":status", "200"), ...pairs(chatAnswer.toString("latin1", 0, answerBodyAt))] },
  },
};

/** @param text the head of an HTTP/1.1 request, as the load generator sends it */
function requestHead(text: string): ProcessingRequest {
  const pseudo = { ":method": "POST", ":path": "/v1/chat/completions", ":authority": "bench", ":scheme": "http" };
  const added = { "x-forwarded-proto": "http", "x-request-id": "0a1b2c3d-4e5f-4607-9829-3a4b5c6d7e8f" };
  const own = Object.entries({ ...pseudo, ...added }).map(([key, value]) => pair(key, value));
  return {
    requestHeaders: { headers: { headers: [...own, ...pairs(text)] } },
    protocolConfig: {
      requestBodyMode: bodyModes.fullDuplexStreamed,
      responseBodyMode: bodyModes.fullDuplexStreamed,
    },
  };
}

/** The fields of a head, without its first line. */
function pairs(head: string): readonly HeaderValue[] {
  const [, ...lines] = head.split("\r\n").filter((line) => line !== "");
  return lines.map((line) => {
    const colon = line.indexOf(":");
    return pair(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  });
}

function pair(key: string, value: string): HeaderValue {
  return { key, rawValue: Buffer.from(value) };
}
