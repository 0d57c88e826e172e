import { createSeededRandom, type Random } from "@espalier/common";
import { expect, test } from "vitest";
import { announced, keys, makeReader, makeRedis, makeWriter, writeMany } from "./part-rig.ts";

const pick = <T>(random: Random, list: readonly T[]): T => list[random.integer(list.length)]!;

type Rig = Awaited<ReturnType<typeof makeRig>>;

async function makeRig(seed: number) {
  const random = createSeededRandom(seed);
  const { time, redis } = makeRedis();
  const limits = {
    maxQueuedUpdates: 20 + random.integer(100),
    blobAfterEntries: 5 + random.integer(60),
    pieceBytes: 64 + random.integer(400),
    readCount: 1 + random.integer(10),
  };
  const writers = ["a", "b"].map((id) => makeWriter(time, limits, id));
  const readers = ["r", "s"].map((id) => makeReader(time, limits, id));
  return { random, time, redis, writers, readers, sessions: new Map<object, ReturnType<typeof redis.session>>() };
}

function connect({ redis, sessions }: Rig, part: Rig["writers"][number]["writer"] | Rig["readers"][number]["reader"]) {
  const known = sessions.get(part);
  if (known && !known.isEnded) return;
  part.detach();
  const session = redis.session();
  sessions.set(part, session);
  part.attach(session);
}

const parts = ({ writers, readers }: Rig) => [
  ...writers.map(({ writer }) => writer),
  ...readers.map(({ reader }) => reader),
];

/** What the backend does in a look: renew, see whose journals there are, and hear who asks for a publication. */
async function look(rig: Rig): Promise<void> {
  const { redis, writers, readers } = rig;
  for (const part of parts(rig)) connect(rig, part);
  for (const { writer, replica } of writers) {
    const text = redis.do("HGET", keys.origins, `${replica.origin.router}@1`);
    await writer.check(text === null ? undefined : String(text));
  }
  for (const { reader, holes } of readers) {
    reader.setSources(announced(redis));
    for (const hole of holes.splice(0)) {
      for (const { writer, replica } of writers) if (hole === `${replica.origin.router}@1`) writer.republish();
    }
  }
}

const faults: readonly ((rig: Rig) => void)[] = [
  ({ redis }) => redis.flush(),
  ({ redis, random }) => void redis.do("DEL", pick(random, redis.keys(":journal:").concat("none"))),
  ({ redis, random }) => void redis.do("DEL", pick(random, redis.keys(":doc:").concat("none"))),
  ({ redis }) => void redis.do("DEL", keys.origins),
  ({ sessions, random }) => pick(random, [...sessions.values()]).end("test"),
  ({ redis, random }) => {
    let left = random.integer(30);
    redis.fault = () => (left-- === 0 ? "unheard" : undefined);
  },
  ({ redis, random }) => {
    let left = 1 + random.integer(10);
    redis.fault = () => (left-- > 0 && random.integer(3) === 0 ? "refused" : undefined);
  },
  ({ redis, random }) => {
    const key = pick(random, redis.keys(":journal:").concat(redis.keys(":doc:")));
    if (key) redis.do("SET", key, "something else");
  },
];

async function step(rig: Rig): Promise<void> {
  const { random, writers, time } = rig;
  for (let writes = random.integer(40); writes > 0; writes--) {
    const { replica } = pick(random, writers);
    replica.write(`${random.integer(1e6)}`.repeat(1 + random.integer(5)));
  }
  if (random.integer(4) === 0) pick(random, faults)(rig);
  await time.advanceAsync(random.integer(800));
  if (random.integer(2) === 0) await look(rig).catch(() => {});
}

// Symptom: a reader that was away for a moment lacked changes until the writer's next one, however late that was.
// Mechanism: the writer put them into a new blob and trimmed the stream to nothing, and a stream without entries shows no
// hole.
test("who was away while a stream was trimmed to its end has everything once it is back, though the writer is quiet", async () => {
  const { time, redis } = makeRedis();
  const { writer, replica } = makeWriter(time, { blobAfterEntries: 10 });
  writer.attach(redis.session());
  await time.advanceAsync(0);
  const { reader, replica: copy, holes } = makeReader(time);
  reader.setSources(announced(redis));
  const session = redis.session();
  reader.attach(session);
  writeMany(replica, 0, 3);
  await time.advanceAsync(0);
  reader.detach();
  session.end("test");
  writeMany(replica, 3, 11);
  await time.advanceAsync(0);
  expect(redis.ran("XTRIM")).toBe(1);
  reader.attach(redis.session());
  await time.advanceAsync(0);
  expect(copy.journal(replica.origin)).toEqual(replica.journal(replica.origin));
  expect(holes).toEqual([]);
});

test.each(Array.from({ length: 12 }, (_, at) => at + 20))(
  "readers have what writers wrote, after any faults of Redis and its connections (seed %d)",
  async (seed) => {
    const rig = await makeRig(seed);
    await look(rig);
    for (let round = 0; round < 15; round++) await step(rig);
    rig.redis.fault = () => undefined;
    for (let round = 0; round < 8; round++) {
      await look(rig);
      await rig.time.advanceAsync(500);
    }
    for (const { replica: writer } of rig.writers) {
      for (const { replica: reader } of rig.readers) {
        expect(reader.journal(writer.origin)).toEqual(writer.journal(writer.origin));
      }
    }
    for (const { writer } of rig.writers) expect(writer.queuedBytes).toBe(0);
    for (const { reader } of rig.readers) expect(reader.unread).toEqual([]);
  },
);
