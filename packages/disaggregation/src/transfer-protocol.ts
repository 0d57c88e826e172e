import type { KvTransferProtocol, KvTransferSpec, Random } from "@espalier/common";
import type { Endpoint, JsonObject } from "@espalier/openai";

/** One engine of a pair. */
export interface LegEngine {
  readonly url: string;
  readonly transfer: KvTransferSpec;
  /** Data-parallel rank that gets the leg, of so many. */
  readonly rank: number;
  readonly rankCount: number;
}

/** What a leg says beyond the client's request. */
export interface LegEdits {
  /** Top-level keys of the body and their values as JSON text. */
  readonly set: Readonly<Record<string, string>>;
  /** Flat pairs, names in lower case. */
  readonly headers: readonly string[];
}

/** One request and the pair of engines that is to serve it. */
export interface PairRequest {
  readonly prefill: LegEngine;
  readonly decode: LegEngine;
  readonly endpoint: Endpoint["id"];
  /** The client's body, parsed. */
  readonly fields: JsonObject;
  readonly random: Random;
  /** What the prefill engine calls itself in the protocol, where that has to be asked for. */
  readonly peerId: string | undefined;
  /** Share of the prompt, 0 to 1, that the decode engine must find in a cache to do without the prefill engine. */
  readonly cachedShare: number;
}

/** The legs of one request. */
export interface PairLegs {
  readonly prefill: LegEdits;
  /**
   * @param answer of the prefill engine, where `order` is not `concurrent`
   * @returns undefined when the answer holds nothing that a decode engine could fetch
   */
  decode(answer: Buffer | undefined): LegEdits | undefined;
  /** What the decode engine is asked first, where `order` is `decode_first`. */
  readonly probe?: LegEdits;
}

/** How two engines serve one request, on the wire. Pure. */
export interface TransferProtocol {
  readonly name: KvTransferProtocol;
  /**
   * - `serial`: the decode engine is told what the prefill engine has answered.
   * - `concurrent`: both are asked at once and find each other.
   * - `decode_first`: the decode engine is asked whether caches hold enough of the prompt; if not, as `serial`.
   */
  readonly order: "serial" | "concurrent" | "decode_first";
  readonly endpoints: ReadonlySet<Endpoint["id"]>;
  /** Whether an engine whose role is `decode` can serve a request alone. */
  readonly decodesAlone: boolean;
  /** Whether an engine whose role is `both` can be one of a pair. */
  readonly pairsBoth: boolean;
  /** Whether what the prefill engine answered serves with another decode engine than the one it was asked for. */
  readonly isPortable: boolean;
  /** Where to ask for `peerId`, in the protocols that need it. */
  readonly peerQueryUrl?: (prefill: LegEngine) => string;
  pair(request: PairRequest): PairLegs;
}
