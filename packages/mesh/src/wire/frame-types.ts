/**
 * The first byte of every frame between two routers. The first four are of the handshake, the rest of the link that
 * follows it; only `goodbye` may come in both.
 */
export const frameTypes = {
  hello: 1,
  proof: 2,
  accept: 3,
  reject: 4,
  goodbye: 5,
  data: 6,
  credit: 7,
} as const;
