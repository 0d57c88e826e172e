import { createHash } from "node:crypto";
import { asRouterId, type Connection } from "@espalier/core";
import { encodeHello, encodeProof, type HandshakeRole, type Hello } from "../../src/wire/link-frames.ts";
import { type Heard, listen } from "../transport/transport-suite.ts";
import { LinksRig, secret } from "./links-rig.ts";

/** A peer of which every byte can be chosen. */
export interface RawPeer {
  readonly connection: Connection;
  readonly heard: Heard;
  /** Sends frames and lets them, and the answers, arrive. */
  send(...frames: readonly Uint8Array[]): void;
  /** The hello that was sent last, whatever it says. */
  hello(fields?: Partial<Hello>): Uint8Array;
  proof(role?: HandshakeRole, ...withSecrets: readonly string[]): Uint8Array;
  /** Does the whole handshake as the one who dials. */
  link(fields?: Partial<Hello>): void;
}

export const acceptFrame = Uint8Array.of(3);
let made = 0;

/** Dials a router of the rig, from an address of its own unless told otherwise. */
export async function dialRaw(rig: LinksRig, to: string, address = `raw-${++made}:1`): Promise<RawPeer> {
  const transport = rig.network.transport(address);
  await transport.start();
  const heard = listen();
  let connection: Connection | undefined;
  transport.dial(to, {
    ...heard,
    opened(opened) {
      connection = opened;
      opened.trust();
    },
  });
  rig.time.advance(2);
  if (!connection) throw new Error(`${to} does not answer`);
  return makeRawPeer(rig, connection, heard);
}

/** Listens in the place of a router; the peer is there once it was dialed. */
export async function listenRaw(rig: LinksRig, address: string): Promise<{ readonly peers: readonly RawPeer[] }> {
  const peers: RawPeer[] = [];
  const transport = rig.network.transport(address);
  transport.onConnection((connection) => {
    const heard = listen();
    connection.trust();
    peers.push(makeRawPeer(rig, connection, heard));
    return heard;
  });
  await transport.start();
  return { peers };
}

/** A router `a` of a new rig that has dialed a raw peer at `b:1`. */
export async function dialedByRouter() {
  const rig = new LinksRig();
  const a = await rig.start("a");
  const { peers } = await listenRaw(rig, "b:1");
  a.links.dial("b:1");
  rig.time.advance(10);
  return { rig, a, peers };
}

function makeRawPeer(rig: LinksRig, connection: Connection, heard: Heard): RawPeer {
  let ownHello: Uint8Array = new Uint8Array();
  const peer: RawPeer = {
    connection,
    heard,
    send(...frames) {
      for (const frame of frames) connection.send(frame);
      rig.time.advance(3);
    },
    hello(fields = {}) {
      ownHello = rawHello(fields);
      return ownHello;
    },
    proof(role = "dialer", ...withSecrets) {
      const theirs = heard.frames[0]!;
      const [dialerHello, acceptorHello] = role === "dialer" ? [ownHello, theirs] : [theirs, ownHello];
      return encodeProof(withSecrets.length > 0 ? withSecrets : [secret], role, {
        dialerHello,
        acceptorHello,
        version: 1,
      });
    },
    link(fields) {
      peer.send(peer.hello(fields));
      peer.send(peer.proof());
      peer.send(acceptFrame);
    },
  };
  return peer;
}

/** A hello frame that the routers of the rig take. */
export function rawHello(fields: Partial<Hello> = {}): Uint8Array {
  return encodeHello({ ...defaultHello(), ...fields });
}

function defaultHello(): Hello {
  return {
    versions: { min: 1, max: 1 },
    nonce: createHash("sha256").update(`nonce ${++made}`).digest(),
    cluster: "test",
    seedDigest: createHash("sha256").update("seed").digest(),
    blockSizeTokens: 16,
    origin: { router: asRouterId("raw"), epoch: 1 },
    address: undefined,
    capabilities: [],
  };
}
