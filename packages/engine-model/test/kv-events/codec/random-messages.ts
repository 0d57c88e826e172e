import type { Random } from "@espalier/core";
import { Encoder } from "@msgpack/msgpack";

/** Makes messages of every shape that engines of any generation send, some of their events unknown or malformed. */
export function randomMessage(random: Random): Uint8Array {
  const one = <T>(...choices: readonly T[]): T => choices[random.integer(choices.length)]!;
  const events = Array.from({ length: random.integer(8) }, () => randomEvent(random));
  const timestamp = one<number | null>(1_795_226_916.25 + random.float(), random.integer(2 ** 31), null);
  const rank = one<number | null>(null, 0, random.integer(512));
  const encoder = new Encoder({ useBigInt64: true, ignoreUndefined: true });
  const shape = random.integer(5);
  if (shape === 0) return encoder.encode([timestamp, events]);
  if (shape === 1) return encoder.encode([timestamp, events, rank, { later: [1, "two"] }, "more"]);
  if (shape === 2) return encoder.encode({ later: { a: [null] }, events, data_parallel_rank: rank, ts: timestamp });
  return encoder.encode([timestamp, events, rank]);
}

function randomEvent(random: Random): unknown {
  const kind = random.integer(20);
  if (kind === 0) return random.integer(2) === 0 ? ["AllBlocksCleared"] : { type: "AllBlocksCleared", medium: "GPU" };
  if (kind === 1)
    return random.integer(2) === 0 ? ["BlockMoved", 1, [2]] : { type: "BlockMoved", block_hashes: "none" };
  const fields = kind < 9 ? removed(random) : stored(random);
  if (kind === 2) damage(random, fields);
  return random.integer(2) === 0 ? asArray(random, fields) : asMap(random, fields);
}

function randomHash(random: Random): bigint | number | Uint8Array {
  const shape = random.integer(12);
  if (shape === 0) return Uint8Array.from({ length: 1 + random.integer(40) }, () => random.integer(256));
  if (shape === 1) return random.integer(300) - 100;
  if (shape === 2) return 0;
  if (shape === 3) return -random.integer(2 ** 31);
  const value = (BigInt(random.integer(2 ** 32)) << 32n) | BigInt(random.integer(2 ** 32));
  return random.integer(2) === 0 ? value : BigInt.asIntN(64, value);
}

function randomToken(random: Random): unknown {
  const shape = random.integer(40);
  if (shape === 0) return -1;
  if (shape === 1) return (BigInt(random.integer(2 ** 32)) << 30n) | 5n;
  return random.integer(2 ** (1 + random.integer(32)));
}

function stored(random: Random): Record<string, unknown> {
  const blocks = random.integer(5);
  const blockSize = 1 + random.integer(20);
  const pairs = random.integer(12) === 0;
  const adapter = random.integer(6) === 0 ? `adapter-${random.integer(3)}` : null;
  return {
    type: "BlockStored",
    block_hashes: Array.from({ length: blocks }, () => randomHash(random)),
    parent_block_hash: random.integer(3) === 0 ? null : randomHash(random),
    token_ids: Array.from({ length: blocks * blockSize }, () =>
      pairs ? [randomToken(random), 7] : randomToken(random),
    ),
    block_size: blockSize,
    lora_id: adapter ? 1 + random.integer(9) : null,
    medium: randomMedium(random),
    lora_name: random.integer(4) === 0 ? null : adapter,
    extra_keys: randomExtraKeys(random, blocks, adapter),
    group_idx: random.integer(3) === 0 ? null : random.integer(4),
    kv_cache_spec_kind: [null, "full_attention", "mla_attention", "sliding_window", "mamba"][random.integer(5)],
    kv_cache_spec_sliding_window: random.integer(2) === 0 ? null : 64,
    locality: "LOCAL",
    ownership: null,
  };
}

function randomMedium(random: Random): string | null {
  const names = [null, "GPU", "GPU", "GPU", "CPU", "CPU_PINNED", "CPU_TIER1", "DISK", "STORAGE", "SHARED_STORAGE"];
  return names[random.integer(names.length + 2)] ?? ["EXTERNAL", "MOON"][random.integer(2)]!;
}

function randomExtraKeys(random: Random, blocks: number, adapter: string | null): unknown {
  if (random.integer(3) === 0) return null;
  const salt = random.integer(4) === 0 ? "tenant-ä" : undefined;
  return Array.from({ length: blocks }, (_, block) => {
    const keys: unknown[] = adapter ? [adapter] : [];
    if (random.integer(6) === 0) keys.push([`image-${random.integer(9)}`, random.integer(500)]);
    if (block === 0 && salt) keys.push(salt);
    if (random.integer(9) === 0) keys.push(Uint8Array.of(1, 255, random.integer(256)));
    return keys.length > 0 ? keys : null;
  });
}

function removed(random: Random): Record<string, unknown> {
  return {
    type: "BlockRemoved",
    block_hashes: Array.from({ length: random.integer(2) === 0 ? 1 : random.integer(20) }, () => randomHash(random)),
    medium: randomMedium(random),
    group_idx: random.integer(3) === 0 ? null : random.integer(4),
    locality: null,
  };
}

/** Puts a value of a wrong type into a field. */
function damage(random: Random, fields: Record<string, unknown>): void {
  const names = ["block_hashes", "medium", "group_idx"];
  if (fields.type === "BlockStored")
    names.push("token_ids", "parent_block_hash", "block_size", "lora_name", "extra_keys");
  fields[names[random.integer(names.length)]!] = [2.5, { a: 1 }, [2.5], [["a", 1.5]], true][random.integer(5)];
}

/** Of any generation: as short as the engine's first, or with what was added later. */
function asArray(random: Random, fields: Record<string, unknown>): unknown {
  const values = Object.values(fields);
  const least = fields.type === "BlockStored" ? 4 : 1;
  return values.slice(0, least + random.integer(values.length - least + 1));
}

/** In any order, without some of what is nil, with something unknown. */
function asMap(random: Random, fields: Record<string, unknown>): unknown {
  const entries = Object.entries({ ...fields, later_key: { a: [1, null, new Uint8Array(3)] } });
  const kept = entries.filter(([, value]) => value !== null || random.integer(2) === 0);
  if (random.integer(3) > 0) return Object.fromEntries(kept);
  const [type, ...others] = kept;
  const turn = random.integer(others.length);
  return Object.fromEntries([...others.slice(turn), type!, ...others.slice(0, turn)]);
}
