import { EspalierError, type HttpClient, type HttpRequest, type HttpResponse } from "@espalier/core";

/** An engine whose answers wait until the test gives them. */
export interface FakeEngine {
  readonly http: HttpClient;
  readonly asked: readonly HttpRequest[];
  /** Requests that have no answer yet. */
  readonly open: number;
  /** Answers the oldest request that waits; a body beyond its bound is refused as the real client does. */
  answer(body: string, status?: number): void;
  fail(error: Error): void;
}

export function createFakeEngine(): FakeEngine {
  const asked: HttpRequest[] = [];
  const waiting: {
    readonly maxBytes: number;
    readonly resolve: (response: HttpResponse) => void;
    readonly reject: (error: Error) => void;
  }[] = [];
  const oldest = () => {
    const first = waiting.shift();
    if (!first) throw new Error("no request waits for its answer");
    return first;
  };
  return {
    asked,
    get open() {
      return waiting.length;
    },
    http: (request) => {
      asked.push(request);
      return new Promise((resolve, reject) => waiting.push({ maxBytes: request.maxBytes, resolve, reject }));
    },
    answer(body, status = 200) {
      const { maxBytes, resolve, reject } = oldest();
      if (body.length > maxBytes) reject(new EspalierError("upstream_protocol_error"));
      else resolve({ status, headers: {}, body });
    },
    fail: (error) => oldest().reject(error),
  };
}

export const tokensBody = (...ids: readonly unknown[]): string => JSON.stringify({ tokens: ids, count: ids.length });
