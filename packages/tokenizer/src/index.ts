/** Filled in below. */
