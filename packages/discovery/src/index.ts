/** Sources of engines: a static list and a watched file. */
export {};
