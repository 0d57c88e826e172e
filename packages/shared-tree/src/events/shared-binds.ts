import type { Logger } from "@espalier/core";
import type { EventTransport, OpenSocket, SubscriberObserver, SubscriberOptions } from "./event-transport.ts";

/** Most subscribers of one bound endpoint. */
const maxRoutes = 4_096;

/** One bound socket and its subscribers. */
interface SharedBind {
  readonly routes: Map<string, SubscriberObserver>;
  readonly paused: Set<string>;
  socket: OpenSocket | undefined;
  isUp: boolean;
  hasBacklog: boolean;
  unknownTopics: number;
}

/**
 * Lets subscribers that bind the same endpoint share one socket: engines that dial in use one port of the reader, and
 * topics distinguish their streams. A message goes to the subscriber with exactly its topic, or else to the one whose
 * topic is the address in it (`kv@HOST:PORT@MODEL`). A lost connection is reported to all subscribers, because the
 * socket does not tell whose it was, and so is a backlog. Subscribers that connect are passed through.
 */
export function createSharedBinds(transport: EventTransport, logger: Logger): EventTransport {
  const binds = new Map<string, SharedBind>();
  return {
    openReplay: (options) => transport.openReplay(options),
    openSubscriber(options) {
      if (options.mode === "connect") return transport.openSubscriber(options);
      const bind = binds.get(options.endpoint) ?? { routes: new Map(), paused: new Set(), ...unopened };
      const { routes } = bind;
      if (routes.has(options.topic) || routes.size >= maxRoutes) return refuse(options, routes.size);
      if (bind.socket) replayState(bind, options.observer);
      routes.set(options.topic, options.observer);
      // Remembered once it is open: what throws leaves no topic behind.
      bind.socket ??= transport.openSubscriber({ ...options, topic: "", observer: fanOut(bind, logger) });
      binds.set(options.endpoint, bind);
      return routeOf(bind, options, () => binds.delete(options.endpoint));
    },
  };
}

const unopened = { socket: undefined, isUp: false, hasBacklog: false, unknownTopics: 0 };

function replayState({ isUp, hasBacklog }: SharedBind, observer: SubscriberObserver): void {
  if (isUp) observer.onUp();
  if (hasBacklog) observer.onBacklog(true);
}

function refuse({ topic, endpoint, observer }: SubscriberOptions, routes: number): OpenSocket {
  const why = routes >= maxRoutes ? `has ${maxRoutes} topics already` : `has a reader of topic "${topic}" already`;
  observer.onFailed(new RangeError(`${endpoint} ${why}`));
  return { pause() {}, resume() {}, close() {} };
}

function fanOut(bind: SharedBind, logger: Logger): SubscriberObserver {
  const { routes } = bind;
  return {
    onMessage(frames) {
      const topic = frames[0] ? Buffer.from(frames[0].buffer, frames[0].byteOffset, frames[0].length).toString() : "";
      const route = routes.get(topic) ?? routeByAddress(routes, topic);
      if (route) route.onMessage(frames);
      else if (bind.unknownTopics++ === 0) {
        logger.warn("KV events with a topic of no known engine", { topic: topic.slice(0, 256) });
      }
    },
    onBacklog(hasBacklog) {
      bind.hasBacklog = hasBacklog;
      for (const route of [...routes.values()]) route.onBacklog(hasBacklog);
    },
    onUp() {
      bind.isUp = true;
      for (const route of [...routes.values()]) route.onUp();
    },
    onDown() {
      bind.isUp = false;
      for (const route of [...routes.values()]) route.onDown();
    },
    onFailed(error) {
      for (const route of [...routes.values()]) route.onFailed(error);
    },
  };
}

/** Topic prefix that llm-d configures for engines of a Kubernetes pool: `kv@HOST:PORT@MODEL`. */
const addressPrefix = "kv@";

/** Finds a subscriber by the engine's host and port in such a topic: the engine's default id. */
function routeByAddress(routes: SharedBind["routes"], topic: string): SubscriberObserver | undefined {
  const end = topic.startsWith(addressPrefix) ? topic.indexOf("@", addressPrefix.length) : -1;
  return end < 0 ? undefined : routes.get(topic.slice(addressPrefix.length, end));
}

/** One subscriber's part of a shared socket. The socket is paused while any subscriber asks for it. */
function routeOf(bind: SharedBind, { topic, observer }: SubscriberOptions, onUnused: () => void): OpenSocket {
  const { routes, paused } = bind;
  const resume = (): void => {
    if (paused.delete(topic) && paused.size === 0) bind.socket?.resume();
  };
  return {
    pause() {
      if (routes.get(topic) !== observer) return;
      paused.add(topic);
      bind.socket?.pause();
    },
    resume,
    close() {
      if (routes.get(topic) !== observer) return;
      resume();
      routes.delete(topic);
      if (routes.size > 0) return;
      onUnused();
      bind.socket?.close();
    },
  };
}
