import { Context, context as usualContext } from "zeromq";

/**
 * The context of all our sockets. The library's own bound of 1,023 is 341 feeds; open files run out before this one. The end
 * of the process does not wait for unsent messages.
 */
export const zmqContext = new Context({ maxSockets: usualContext.maxSocketsLimit, blocky: false });
