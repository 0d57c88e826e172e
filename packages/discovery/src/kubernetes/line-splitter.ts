const newline = 0x0a;

/** Cuts a stream of bytes into lines. */
export interface LineSplitter {
  /**
   * @param chunk may be overwritten after the call
   * @returns the lines that it completes, without their ends; empty ones are left out
   * @throws RangeError when a line is longer than the greatest length, and TypeError when one is not UTF-8
   */
  push(chunk: Uint8Array): readonly string[];
}

export function createLineSplitter(maxLineBytes: number): LineSplitter {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let pending: Buffer[] = [];
  let pendingBytes = 0;

  const add = (piece: Uint8Array): void => {
    pendingBytes += piece.length;
    if (pendingBytes > maxLineBytes) throw new RangeError(`a line is longer than ${maxLineBytes} bytes`);
    if (piece.length > 0) pending.push(Buffer.from(piece));
  };
  const takeLine = (): string => {
    const line = decoder.decode(pending.length === 1 ? pending[0] : Buffer.concat(pending, pendingBytes));
    pending = [];
    pendingBytes = 0;
    return line;
  };
  return {
    push(chunk) {
      const lines: string[] = [];
      let start = 0;
      for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
        add(chunk.subarray(start, end));
        const line = takeLine();
        if (line.trim() !== "") lines.push(line);
        start = end + 1;
      }
      add(chunk.subarray(start));
      return lines;
    },
  };
}
