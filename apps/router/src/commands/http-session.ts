import { type HttpClient, systemClock, systemScheduler } from "@espalier/common";
import { createProxy } from "@espalier/proxy";

/** Lets `use` send requests over HTTP and closes every connection afterwards, however it ends. */
export async function withHttpClient<Result>(use: (http: HttpClient) => Promise<Result>): Promise<Result> {
  const proxy = createProxy({ clock: systemClock, scheduler: systemScheduler });
  await proxy.start();
  try {
    return await use(proxy.httpClient);
  } finally {
    await proxy.stop();
  }
}
