import { systemClock, systemScheduler } from "@espalier/core";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { expect, onTestFinished } from "vitest";
import {
  createKvEventPublisher,
  type KvEventPublisher,
  type KvEventPublisherOptions,
} from "../../../src/kv-events/publish/kv-event-publisher.ts";
import { type RawSubscriber, subscribe } from "./raw-reader.ts";

/** A publisher with a replay socket, which ends with the test. It must not have logged anything by then. */
export function createPublisher(options: Partial<KvEventPublisherOptions> = {}): KvEventPublisher {
  const logger = createRecordingLogger();
  const publisher = createKvEventPublisher({
    ...{ topic: "kv-events", dialect: "vllm-0.32", replayPort: 0 },
    ...{ clock: systemClock, scheduler: systemScheduler, logger, ...options },
  });
  onTestFinished(async () => {
    await publisher.stop();
    expect(logger.lines).toEqual([]);
  });
  return publisher;
}

export async function startPublisher(options?: Partial<KvEventPublisherOptions>): Promise<KvEventPublisher> {
  const publisher = createPublisher(options);
  await publisher.start();
  return publisher;
}

/** A subscriber of which the publisher knows. It ends with the test. */
export async function subscribeTo(publisher: KvEventPublisher, topic = ""): Promise<RawSubscriber> {
  const before = publisher.subscriptions;
  const subscriber = await subscribe(publisher.endpoint, { topic });
  onTestFinished(() => subscriber.close());
  await waitFor(() => publisher.subscriptions > before, { what: "subscription" });
  return subscriber;
}
