/** Configuration: schema, defaults, merge of file, environment and flags, compilation. */
export {};
