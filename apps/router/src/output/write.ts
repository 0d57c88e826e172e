/** Results go to standard output, alone, so that they can be piped. */
export function writeResult(text: string): void {
  process.stdout.write(text.endsWith("\n") ? text : `${text}\n`);
}

/** One JSON value, on standard output. */
export function writeJson(value: unknown): void {
  writeResult(JSON.stringify(value, null, 2));
}

/** Everything that is not the result: what is going on, and errors. */
export function writeNote(text: string): void {
  process.stderr.write(`${text}\n`);
}
