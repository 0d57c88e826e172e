/** What engines serve and clients ask for. */
export const benchModel = "bench-model";
