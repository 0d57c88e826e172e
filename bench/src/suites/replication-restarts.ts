import type { DocumentUpdate } from "@espalier/mesh";
import type { Figures } from "../support/median-spread.ts";
import { livingMember, newTime, RigRouter } from "./replication-rig.ts";

export interface RestartShape {
  readonly epochs: number;
  /** Routers that restart, one after the other. */
  readonly routers: number;
  /** Feeds of each router, new in each epoch. */
  readonly feeds: number;
  readonly blocksPerFeed: number;
  readonly seed: number;
}

/**
 * Time between two restarts: shorter than the lifetime of placements, so that nothing is dropped because of its age.
 */
const betweenMs = 2_000;
const tickMs = 15;
/** After this time, nothing of a dead router is of use. */
const quietMs = 1_200_000;
const upkeepStepMs = 1_000;

/**
 * Starts and ends routers with a few names, over and over, next to one that stays, and counts what remains of them
 * there.
 *
 * @throws Error when it lacks what the live routers have sent
 */
export function measureRestarts(shape: RestartShape): Figures {
  const staying = new RigRouter("staying", newTime(), tickMs);
  const living: RigRouter[] = [];
  let mostDocuments = 0;
  const carry = (router: RigRouter): void => staying.take(router.outbox.splice(0).map(copyOf));
  for (let epoch = 0; epoch < shape.epochs; epoch++) {
    const name = `router-${epoch % shape.routers}`;
    const time = newTime();
    time.advance(staying.time.clock.nowMs() + 1);
    const router = new RigRouter(name, time, tickMs);
    const before = living.findIndex(({ id }) => id === name);
    if (before >= 0) for (const gone of living.splice(before, 1)) void gone.replica.stop();
    living.push(router);
    staying.replica.setMembers(living.map(livingMember));
    for (let feed = 0; feed < shape.feeds; feed++) {
      const { feed: engine, reader } = router.open(`${name}-engine-${feed}/0`, shape.blocksPerFeed, shape.seed + epoch);
      while (!engine.isFull) {
        engine.step(reader.sink);
        reader.batch(engine.mark(time.clock.wallMs() * 1_000), true);
      }
    }
    for (let passedMs = 0; passedMs < betweenMs; passedMs += tickMs) {
      time.advance(tickMs);
      staying.time.advance(tickMs);
    }
    carry(router);
    mostDocuments = Math.max(mostDocuments, staying.replica.store.stats().documents);
  }
  const after = staying.replica.store.stats();
  for (let passedMs = 0; passedMs < quietMs; passedMs += upkeepStepMs) {
    for (const { time } of [staying, ...living]) time.advance(upkeepStepMs);
    for (const router of living) carry(router);
  }
  const settled = staying.replica.store.stats();
  check(staying, living);
  for (const { replica } of [staying, ...living]) void replica.stop();
  return {
    documents_after_1000_restarts: after.documents,
    documents_at_most: mostDocuments,
    documents_after_quiet: settled.documents,
    journal_bytes_after_restarts: after.byteLength,
    journal_bytes_after_quiet: settled.byteLength,
  };
}

const copyOf = (update: DocumentUpdate): DocumentUpdate => ({ ...update, bytes: update.bytes.slice() });

function check(staying: RigRouter, living: readonly RigRouter[]): void {
  for (const { feeds, replica } of living) {
    for (const { target, feed } of feeds) {
      const [here, there] = [staying.replica.fold, replica.fold].map((fold) => fold.statement(target));
      if (here?.blocks !== feed.blocks || here.digest.join() !== there?.digest.join()) {
        throw new Error(`${target} has ${here?.blocks} blocks, its engine ${feed.blocks}`);
      }
    }
  }
}
