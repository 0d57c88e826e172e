/** The espalier command. */
export {};
