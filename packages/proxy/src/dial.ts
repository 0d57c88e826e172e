import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import type { CurrentTls, TlsOptions } from "./options.ts";

/** Where an engine listens. */
export interface Address {
  readonly secure: boolean;
  /** A name or an address; an IPv6 address without its brackets. */
  readonly host: string;
  readonly port: number;
}

/** Opens sockets to one address. */
export interface Dialer {
  /**
   * @param opened called at most once, with an error or with the open socket; not after the socket was destroyed
   * @returns the socket being opened, so that the dial can be given up
   */
  dial(opened: (error: Error | null, socket: Socket) => void): Socket;
}

/** After this long without traffic the kernel begins to probe the peer. */
const keepAliveProbeMs = 60_000;
/** Node passes stream options of sockets on, though its types do not list them. */
const readBuffer = { highWaterMark: 64 * 1024 };

/** A dialer that resumes TLS sessions. */
export function createDialer(address: Address, options: CurrentTls): Dialer {
  // A session that is resumed shows no certificate: it stands for those that it began with.
  let session: { readonly of: TlsOptions; readonly ticket: Buffer } | undefined;
  const { host, port, secure } = address;

  const dialTls = (): TLSSocket => {
    const tls = options.current;
    // RFC 6066 forbids addresses as server names.
    const servername = tls.servername ?? (isIP(host) ? undefined : host);
    const socket = connectTls({
      ...tls,
      ...readBuffer,
      host,
      port,
      ALPNProtocols: ["http/1.1"],
      ...(servername === undefined ? {} : { servername }),
      ...(session?.of === tls ? { session: session.ticket } : {}),
    });
    return socket.on("session", (ticket: Buffer) => {
      session = { of: tls, ticket };
    });
  };

  return {
    dial(opened) {
      const socket = secure ? dialTls() : connectTcp({ host, port, ...readBuffer });
      socket.setNoDelay(true);
      socket.setKeepAlive(true, keepAliveProbeMs);
      const fail = (error: Error): void => opened(error, socket);
      socket.once("error", fail);
      socket.once(secure ? "secureConnect" : "connect", () => {
        socket.removeListener("error", fail);
        opened(null, socket);
      });
      return socket;
    },
  };
}
