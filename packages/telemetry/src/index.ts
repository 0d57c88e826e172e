/** Metrics and logs behind the ports of common. */
export {};
