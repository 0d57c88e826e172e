/** A peer sent what no router sends: bytes that cannot be read, or that do not go with what it sent before. */
export class PeerFault extends RangeError {}

/**
 * Reads bytes of a peer. What is done about them belongs outside, where an exception is a fault of this router.
 *
 * @throws PeerFault where `read` throws a RangeError
 */
export function readFromPeer<Value>(read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new PeerFault(error.message, { cause: error });
  }
}
