/**
 * `owner`: reads the events and journals them. `backup`: reads them and keeps the latest, to take over without loss.
 * `none`: does not read.
 */
export type FeedRole = "owner" | "backup" | "none";
