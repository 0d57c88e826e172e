/** What has happened in runs, so that a test can assert that all of it was reached. */
export interface RunCounts {
  requests: number;
  retried: number;
  failed: number;
  breaks: number;
  duplicates: number;
  clogs: number;
  partitionsHealed: number;
  kills: number;
  leaves: number;
  newIds: number;
  pausesSurvived: number;
  clockJumps: number;
  drifts: number;
  engineRestarts: number;
  lostEvents: number;
  replays: number;
  evictions: number;
  takeovers: number;
  resyncs: number;
  refolds: number;
  reloads: number;
  snapshots: number;
  expiredLeases: number;
  probedQuality: number;
}

export function noCounts(): RunCounts {
  const requests = { requests: 0, retried: 0, failed: 0 };
  const links = { breaks: 0, duplicates: 0, clogs: 0, partitionsHealed: 0 };
  const processes = { kills: 0, leaves: 0, newIds: 0, pausesSurvived: 0, clockJumps: 0, drifts: 0 };
  const engines = { engineRestarts: 0, lostEvents: 0, replays: 0, evictions: 0 };
  const tier = { takeovers: 0, resyncs: 0, refolds: 0, reloads: 0, snapshots: 0, expiredLeases: 0, probedQuality: 0 };
  return { ...requests, ...links, ...processes, ...engines, ...tier };
}

export function addCounts(to: RunCounts, from: RunCounts): void {
  for (const name of Object.keys(from) as (keyof RunCounts)[]) to[name] += from[name];
}
