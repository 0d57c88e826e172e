/**
 * Which addresses count where an engine may have several: `auto` takes the IPv4 ones where there are any and the IPv6
 * ones otherwise, so that an engine with both is one engine.
 */
export type AddressFamily = "auto" | "ipv4" | "ipv6";
