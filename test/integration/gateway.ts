import {
  type BodyMode,
  bodyModes,
  type HeaderValue,
  type ProcessingRequest,
  type ProcessingResponse,
} from "@espalier/server";
import { connectGateway, type GatewayClient, type GatewayStream } from "@espalier/server/gateway-client";
import type { Json } from "./client.ts";
import type { Rig, RunningRouter } from "./rig.ts";

/** A router's settings as an endpoint picker on free ports. */
export const pickerConfig = { port: 0, "health-port": 0, fallbacks: 2 };

/** What a gateway tells with the head of a request. */
export interface ExchangeOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly path?: string;
  readonly method?: string;
  /** Endpoints that the gateway allows. */
  readonly subset?: readonly string[];
  readonly requestMode?: BodyMode;
  readonly answerMode?: BodyMode;
  readonly endOfStream?: boolean;
}

/** One exchange, played as Envoy does. */
export class PlayedExchange {
  readonly stream: GatewayStream;

  constructor(stream: GatewayStream) {
    this.stream = stream;
  }

  head(options: ExchangeOptions = {}): this {
    const { headers = {}, path = "/v1/chat/completions", method = "POST", subset, endOfStream = false } = options;
    const { requestMode = bodyModes.fullDuplexStreamed, answerMode = bodyModes.fullDuplexStreamed } = options;
    const pseudo = { ":method": method, ":path": path, ":authority": "gateway", ":scheme": "http" };
    this.stream.send({
      requestHeaders: {
        headers: { headers: values({ ...pseudo, "content-type": "application/json", ...headers }) },
        endOfStream,
      },
      protocolConfig: { requestBodyMode: requestMode, responseBodyMode: answerMode },
      ...(subset && { metadataContext: { filterMetadata: subsetMetadata(subset) } }),
    });
    return this;
  }

  body(body: string | Buffer, endOfStream = true): this {
    this.stream.send({ requestBody: { body: Buffer.from(body), endOfStream } });
    return this;
  }

  /** The head of an engine's answer. */
  answer(status: number, headers: Readonly<Record<string, string>> = {}, served?: string, endOfStream = false): this {
    const metadata = served && {
      "envoy.lb": { fields: { "x-gateway-destination-endpoint-served": { stringValue: served } } },
    };
    this.stream.send({
      responseHeaders: { headers: { headers: values({ ":status": String(status), ...headers }) }, endOfStream },
      ...(metadata && { metadataContext: { filterMetadata: metadata } }),
    });
    return this;
  }

  answerBody(body: string, endOfStream = true): this {
    this.stream.send({ responseBody: { body: Buffer.from(body), endOfStream } });
    return this;
  }

  trailers(which: "requestTrailers" | "responseTrailers"): this {
    this.stream.send({ [which]: {} } satisfies ProcessingRequest);
    return this;
  }

  async next(): Promise<ProcessingResponse> {
    const message = await this.stream.receive();
    if (!message) throw new Error("the picker ended the exchange");
    return message;
  }

  /** The route: where the request goes, and its body as the gateway sends it on. */
  async routed(): Promise<Routed> {
    const first = await this.next();
    const response = first.requestHeaders?.response;
    if (!response) throw new Error(`no route: ${JSON.stringify(refusalOf(first))}`);
    return { ...routeOf(first), body: await this.restOfBody() };
  }

  /** Pieces until the end of the request's body. */
  async restOfBody(): Promise<Buffer> {
    const pieces: Uint8Array[] = [];
    for (;;) {
      const { streamedResponse } = (await this.next()).requestBody?.response?.bodyMutation ?? {};
      if (!streamedResponse) throw new Error("the body was not streamed");
      pieces.push(streamedResponse.body ?? new Uint8Array());
      if (streamedResponse.endOfStream) return Buffer.concat(pieces);
    }
  }

  /** What the client gets instead of an engine's answer. */
  async refused(): Promise<Refused> {
    const message = await this.next();
    if (!message.immediateResponse) throw new Error(`not refused: ${JSON.stringify(message)}`);
    return refusalOf(message);
  }
}

export interface Routed {
  readonly destinations: readonly string[];
  readonly metadata: Json;
  readonly set: Readonly<Record<string, string>>;
  readonly removed: readonly string[];
  readonly body: Buffer;
}

export interface Refused {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

/** A gateway that asks this router. */
export function gatewayOf(rig: Rig, router: RunningRouter): GatewayClient & { exchange(): PlayedExchange } {
  const client = connectGateway(router.router.picker?.address ?? "");
  rig.own(() => client.close());
  return { ...client, exchange: () => new PlayedExchange(client.open()) };
}

/** The route of an answer to the head, or to a buffered body. */
export function routeOf(message: ProcessingResponse): Omit<Routed, "body"> {
  const response = message.requestHeaders?.response ?? message.requestBody?.response;
  const set = textsOf(response?.headerMutation?.setHeaders ?? []);
  const fields = message.dynamicMetadata?.fields?.["envoy.lb"]?.structValue?.fields ?? {};
  return {
    destinations: (set["x-gateway-destination-endpoint"] ?? "").split(","),
    metadata: Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, plain(value)])),
    set,
    removed: [...(response?.headerMutation?.removeHeaders ?? [])].sort(),
  };
}

function plain(value: {
  stringValue?: string | null;
  structValue?: { fields?: Readonly<Record<string, { numberValue?: number | null }>> } | null;
}): unknown {
  if (!value.structValue) return value.stringValue;
  return Object.fromEntries(
    Object.entries(value.structValue.fields ?? {}).map(([key, { numberValue }]) => [key, numberValue]),
  );
}

export function textsOf(set: readonly { readonly header: HeaderValue }[]): Readonly<Record<string, string>> {
  return Object.fromEntries(set.map(({ header }) => [header.key, Buffer.from(header.rawValue ?? "").toString()]));
}

function refusalOf({ immediateResponse }: ProcessingResponse): Refused {
  return {
    status: immediateResponse?.status.code ?? 0,
    headers: textsOf(immediateResponse?.headers?.setHeaders ?? []),
    text: Buffer.from(immediateResponse?.body ?? "").toString(),
  };
}

function values(headers: Readonly<Record<string, string>>): readonly HeaderValue[] {
  return Object.entries(headers).map(([key, value]) => ({ key, rawValue: Buffer.from(value) }));
}

function subsetMetadata(subset: readonly string[]) {
  const listed = { listValue: { values: subset.map((stringValue) => ({ stringValue })) } };
  return { "envoy.lb.subset_hint": { fields: { "x-gateway-destination-endpoint-subset": listed } } };
}
