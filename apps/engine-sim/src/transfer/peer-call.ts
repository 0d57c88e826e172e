import { request as httpRequest } from "node:http";

/** Bytes of an answer that are read. */
const maxAnswerBytes = 65_536;

interface PeerCall {
  /** `http://host:port/path` */
  readonly url: string;
  readonly method: "POST" | "PUT";
  readonly body: unknown;
  readonly signal?: AbortSignal;
}

/**
 * Asks another engine's side channel for something.
 *
 * @returns the answer's JSON
 * @throws (rejects) Error when there is no answer, or another one than 200
 */
export function callPeer({ url, method, body, signal }: PeerCall): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method, agent: false, ...(signal && { signal }) });
    request.on("error", reject);
    request.on("close", () => reject(new Error("the other engine did not answer")));
    request.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        if (text.length < maxAnswerBytes) text += chunk;
      });
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode !== 200) reject(new Error(text));
        else resolve(JSON.parse(text));
      });
    });
    request.end(JSON.stringify(body));
  });
}
