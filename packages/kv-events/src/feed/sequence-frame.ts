/**
 * The sequence number in a frame of 8 bytes, big-endian.
 *
 * @returns undefined when the frame has another length or the number is beyond 2^53 - 1, which no engine reaches: at
 *   1,000 messages a second it would take 285,000 years
 */
export function readSequence(frame: Uint8Array): number | undefined {
  if (frame.length !== 8) return undefined;
  const view = new DataView(frame.buffer, frame.byteOffset, 8);
  const high = view.getUint32(0);
  return high < 0x20_0000 ? high * 0x1_0000_0000 + view.getUint32(4) : undefined;
}

/** @param sequence from 0 to 2^53 - 1 */
export function writeSequence(sequence: number): Uint8Array {
  const frame = new Uint8Array(8);
  const view = new DataView(frame.buffer);
  view.setUint32(0, Math.floor(sequence / 0x1_0000_0000));
  view.setUint32(4, sequence % 0x1_0000_0000);
  return frame;
}
