import { configureGlobal } from "fast-check";

/** Properties that name no seed are tried with the same cases by everybody; `npm run test:fresh` draws others. */
const fixedSeed = 20_261_123;

configureGlobal({ seed: Number(process.env.TEST_SEED ?? fixedSeed) });
