/** What `npm run test:fuzz` asks for. */
export interface FuzzRequest {
  readonly seed: number;
  /** For each decoder of a file together with the others of it, in milliseconds. */
  readonly fileMs: number;
  /** Takes a line of JSON when a decoder's turn begins, and one when it ends. */
  readonly reportFile: string;
  /** The only decoder to be run. */
  readonly decoder?: string;
  /** The only case of it to be run. */
  readonly case?: number;
}

/** How one decoder fared. */
export interface FuzzReport {
  readonly name: string;
  readonly seed: number;
  readonly cases: number;
  /** Cases that were refused with the documented error. */
  readonly refused: number;
  /** The longest that one case took. */
  readonly slowestMs: number;
}

/** @param text JSON of a request, as the environment has it; undefined in `npm test` */
export const readFuzzRequest = (text: string | undefined): FuzzRequest | undefined =>
  text === undefined ? undefined : (JSON.parse(text) as FuzzRequest);
