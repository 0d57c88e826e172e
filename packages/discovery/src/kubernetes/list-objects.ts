import { ApiFailure, asApiFailure } from "./api-failure.ts";
import { listOf, objectOf, textOf } from "./json.ts";
import type { KubernetesClient } from "./kubernetes-client.ts";
import { type KubernetesObject, readObject } from "./watch-event.ts";

/** Objects that one page is asked to have. */
const pageSize = 250;
/** More pages than `maxObjects` need mean that the server goes round in circles. */
const sparePages = 8;

export interface ListQuestion {
  readonly path: string;
  /** Selectors, as the API names them. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Reading ends with the page that passes this. */
  readonly maxObjects: number;
}

export interface ObjectList {
  readonly objects: readonly KubernetesObject[];
  /** Where a watch goes on. */
  readonly version: string;
}

/**
 * Reads a list, page by page.
 *
 * @throws ApiFailure
 */
async function listObjects(
  client: KubernetesClient,
  { path, parameters, maxObjects }: ListQuestion,
): Promise<ObjectList> {
  const objects: KubernetesObject[] = [];
  let token: string | undefined;
  for (let page = 0; page < Math.ceil(maxObjects / pageSize) + sparePages; page++) {
    const query = { ...parameters, limit: String(pageSize), ...(token === undefined ? {} : { continue: token }) };
    const answer = objectOf(await client.get(`${path}?${new URLSearchParams(query)}`));
    const metadata = objectOf(answer.metadata);
    const version = textOf(metadata.resourceVersion);
    if (version === undefined || !Array.isArray(answer.items)) throw new ApiFailure("the answer is not a list");
    for (const item of listOf(answer.items)) {
      const object = readObject(item);
      if (!object) throw new ApiFailure("the list has something that is no object");
      objects.push(object);
    }
    token = textOf(metadata.continue);
    if (token === undefined || objects.length > maxObjects) return { objects, version };
  }
  throw new ApiFailure("the list does not end");
}

/**
 * Reads the first of several lists that there is: an API may be served under its newer name or its older one.
 *
 * @param mustExist whether an empty list is none either
 * @throws ApiFailure
 */
export async function listFirst(
  client: KubernetesClient,
  {
    paths,
    mustExist,
    ...question
  }: Omit<ListQuestion, "path"> & {
    readonly paths: readonly string[];
    readonly mustExist: boolean;
  },
): Promise<ObjectList & { readonly path: string }> {
  let failure: ApiFailure | undefined;
  for (const path of paths) {
    try {
      const list = await listObjects(client, { path, ...question });
      if (list.objects.length > 0 || !mustExist) return { ...list, path };
      failure = new ApiFailure("it does not exist");
    } catch (error) {
      const refusal = asApiFailure(error);
      if (refusal.status !== 404) throw refusal;
      failure ??= refusal;
    }
  }
  throw failure;
}
