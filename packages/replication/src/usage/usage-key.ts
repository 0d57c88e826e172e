import { hashOf } from "@espalier/prefix-index";

/** Values of what stands for a class of a pool in a key, and of what stands for a tenant in it. Their product is 2^53. */
const groups = 2 ** 16;
const tenants = 2 ** 37;

/**
 * Stands for a tenant of a class of a pool, so that names of whatever length cost seven bytes: 16 bits of a hash of class
 * and pool, the high ones, and 37 bits of a hash of all three. Among 10,000 tenants of a class two share a key with a
 * probability of one in 2,700; they are then served as if they were one elsewhere.
 */
export function usageKey(pool: string, className: string, tenant: string): number {
  const { low, high } = hashOf(JSON.stringify([pool, className, tenant]));
  return usageGroup(pool, className) * tenants + (high % (tenants / 2 ** 32)) * 2 ** 32 + low;
}

/** Stands for a class of a pool. */
export function usageGroup(pool: string, className: string): number {
  return hashOf(JSON.stringify([pool, className])).low % groups;
}

/** The class of the pool that a key is of. */
export function groupOfKey(key: number): number {
  return Math.floor(key / tenants);
}
