import type { ServerResponse } from "node:http";

export interface Garbage {
  readonly status: number;
  readonly contentType: string;
  readonly sizeBytes: number;
}

const pieceBytes = 64 * 1024;
/** Neither text nor JSON, and no line ends in it. */
const piece = Buffer.alloc(pieceBytes, Buffer.from([0x7b, 0x22, 0xff, 0x00, 0xc3, 0x28]));

/** Answers with bytes that mean nothing, as fast as they are taken. */
export function sendGarbage(response: ServerResponse, { status, contentType, sizeBytes }: Garbage): void {
  let leftBytes = sizeBytes;
  const pump = (): void => {
    while (leftBytes > 0 && !response.destroyed) {
      const some = piece.subarray(0, Math.min(leftBytes, pieceBytes));
      leftBytes -= some.length;
      if (!response.write(some)) return;
    }
    response.end();
  };
  response.writeHead(status, { "content-type": contentType });
  response.on("drain", pump);
  pump();
}
