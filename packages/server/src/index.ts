/** The router: a fastify application that wires the packages together. */
export {};
