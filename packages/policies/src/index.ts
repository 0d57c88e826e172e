/** Pure scorers, pickers and the named routing policies built of them. */
export {};
