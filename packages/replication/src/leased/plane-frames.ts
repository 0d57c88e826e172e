import { asRouterId, type ByteReader, type ByteWriter, EspalierError } from "@espalier/common";
import type { Origin } from "../origin.ts";

/** UTF-8 bytes of a router's id. */
const maxRouterBytes = 255;

/** Router as text, epoch as varint. */
export function writeOrigin(writer: ByteWriter, { router, epoch }: Origin): void {
  writer.text(router);
  writer.varint(epoch);
}

/** @throws RangeError for a router without a name, and for what `writeOrigin` does not write */
export function readOrigin(reader: ByteReader): Origin {
  const router = reader.text(maxRouterBytes);
  if (router === "") throw new RangeError("the router has no name");
  return { router: asRouterId(router), epoch: reader.varint() };
}

/** How far the counter of a report lies back behind that of a relay's frame. @throws RangeError when the origin had not begun */
export function readCounter(reader: ByteReader, frameCounter: number, isRelayed: boolean): number {
  const lag = isRelayed ? reader.varint() : 0;
  if (lag > frameCounter) throw new RangeError("a report is older than its origin");
  return frameCounter - lag;
}

/**
 * Reads a frame of another router, which may say anything.
 *
 * @param what the frame is of, for the message
 * @throws EspalierError `mesh_frame_invalid` where `read` throws a RangeError, and for more than `maxBytes`
 */
export function readFrame<Frame>(
  bytes: Uint8Array,
  { what, maxBytes, read }: { readonly what: string; readonly maxBytes: number; read(bytes: Uint8Array): Frame },
): Frame {
  try {
    if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes are too many`);
    return read(bytes);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new EspalierError("mesh_frame_invalid", `A frame of ${what}: ${error.message}.`, { cause: error });
  }
}

/**
 * Cuts items into as few lists as fit into frames, in their order; none when there are no items.
 *
 * @param sizeOf bytes that an item takes at most
 */
export function splitIntoFrames<Item>(
  items: readonly Item[],
  { maxBytes, maxItems, sizeOf }: { readonly maxBytes: number; readonly maxItems: number; sizeOf(item: Item): number },
): Item[][] {
  const lists: Item[][] = [];
  let bytes = 0;
  for (const item of items) {
    const more = sizeOf(item);
    const list = lists.at(-1);
    if (!list || bytes + more > maxBytes || list.length === maxItems) {
      lists.push([item]);
      bytes = more;
    } else {
      list.push(item);
      bytes += more;
    }
  }
  return lists;
}
