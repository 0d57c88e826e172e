import { ByteReader, ByteWriter } from "@espalier/common";
import { type Channel, channels } from "../link/link.ts";
import { frameTypes } from "./handshake-frames.ts";

/** Bytes that a link puts before every frame of a channel. */
export const dataHeaderBytes = 2;

/** Leave to send more on a channel. */
export interface Credit {
  readonly channel: Channel;
  /** Bytes of data frames, headers included, that the receiver has dealt with. */
  readonly bytes: number;
}

const channelNumbers = Object.fromEntries(channels.map((channel, index) => [channel, index])) as Readonly<
  Record<Channel, number>
>;

/** Puts the header of its channel before a frame. */
export function encodeData(channel: Channel, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(dataHeaderBytes + payload.length);
  frame[0] = frameTypes.data;
  frame[1] = channelNumbers[channel];
  frame.set(payload, dataHeaderBytes);
  return frame;
}

/**
 * The channel of a data frame.
 *
 * @throws RangeError for a channel that does not exist
 */
export function channelOf(frame: Uint8Array): Channel {
  const channel = frame.length < dataHeaderBytes ? undefined : channels[frame[1]!];
  if (!channel) throw new RangeError("a frame of an unknown channel");
  return channel;
}

/** Writes a credit frame. */
export function encodeCredit({ channel, bytes }: Credit): Uint8Array {
  const writer = new ByteWriter(16);
  writer.u8(frameTypes.credit);
  writer.u8(channelNumbers[channel]);
  writer.varint(bytes);
  return writer.copy();
}

/**
 * Reads a credit frame.
 *
 * @throws RangeError for bytes that are no credit frame
 */
export function decodeCredit(frame: Uint8Array): Credit {
  const channel = channelOf(frame);
  const reader = new ByteReader(frame.subarray(dataHeaderBytes));
  const bytes = reader.varint();
  reader.end();
  return { channel, bytes };
}
