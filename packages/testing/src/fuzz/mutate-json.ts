import type { Random } from "@espalier/common";

/** Values that readers of JSON forget. */
const oddValues: readonly unknown[] = [
  ...[
    null,
    true,
    false,
    0,
    -1,
    1.5,
    1e308,
    -1e-308,
    2 ** 53 + 2,
    "",
    "x",
    "\ud800",
    "\u0000\r\n",
    [],
    {},
    [[]],
    [null],
  ],
  ...[{ "": {} }, { constructor: 1 }, JSON.parse('{"__proto__":{"a":1}}'), "9".repeat(400), "a".repeat(2_000)],
  ...[Array.from({ length: 300 }, (_, at) => at)],
];

/**
 * Changes values of a JSON text and leaves it JSON: values become odd ones, move elsewhere, or go.
 *
 * @returns undefined when the bytes are no JSON, or hold no object and no list
 */
export function mutateJson(random: Random, bytes: Uint8Array): Uint8Array<ArrayBuffer> | undefined {
  const root = parsed(bytes);
  if (typeof root !== "object" || root === null) return undefined;
  for (let change = 1 + random.integer(3); change > 0; change--) changeOne(random, root);
  return new TextEncoder().encode(JSON.stringify(root));
}

function parsed(bytes: Uint8Array): unknown {
  if (bytes[0] !== 0x7b && bytes[0] !== 0x5b) return undefined;
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}

type Container = Record<string, unknown>;

function changeOne(random: Random, root: object): void {
  const path: Container[] = [root as Container];
  for (;;) {
    const container = path.at(-1)!;
    const keys = Object.keys(container);
    if (keys.length === 0) return;
    const key = keys[random.integer(keys.length)]!;
    const value = container[key];
    if (typeof value === "object" && value !== null && random.integer(4) > 0) {
      path.push(value as Container);
      continue;
    }
    const way = random.integer(6);
    if (way === 0) delete container[key];
    else if (way === 1) container[`${key}${random.integer(10)}`] = structuredClone(value);
    else container[key] = structuredClone(oddValues[random.integer(oddValues.length)]);
    return;
  }
}
