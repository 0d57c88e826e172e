import { isIP } from "node:net";
import { Type } from "typebox";
import type { Path, Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { integer, list, text } from "../schema-builders.ts";
import { compiled } from "../settings-of.ts";

/** `_SERVICE._PROTOCOL.HOST`, as a pattern without its ends. */
export const recordsPattern = "_[A-Za-z0-9-]+\\._[A-Za-z]+\\.[A-Za-z0-9._-]+";

export const port = (description: string) => Type.Optional(integer({ description, minimum: 1, maximum: 65_535 }));

export const nameServers = (options: { readonly description: string; readonly flag?: string }) =>
  list(
    text({
      description:
        "IP address of a name server, with a port if it is not 53. An IPv6 address with a port needs brackets.",
      maxLength: 64,
      pattern: "^(\\d{1,3}(\\.\\d{1,3}){3}(:\\d{1,5})?|[0-9a-fA-F:]+|\\[[0-9a-fA-F:]+\\](:\\d{1,5})?)$",
      expected: "ADDRESS or ADDRESS:PORT",
    }),
    { ...options, maxItems: 8 },
  );

/** A Kubernetes service and one of its ports, in one text: a number or a name, undefined for the first one. */
export const service = () =>
  compiled(serviceText(), (written) => {
    const { namespace, name: rest } = splitNamespace(written);
    const { name, port: named } = splitPort(rest);
    return { namespace, service: name, port: portOf(named) ?? named };
  });

const serviceText = () =>
  text({
    description:
      "A Kubernetes service as `NAMESPACE/NAME:PORT`. Without a namespace, it is in the namespace of the service account. The port is a number or the name of a service port; without it, the first port is used.",
    maxLength: 200,
    pattern: "^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(:[a-z0-9]([a-z0-9-]*[a-z0-9])?)?$",
    expected: "NAMESPACE/NAME:PORT",
  });

/** Pods of Kubernetes and one of their ports. @param whose in descriptions */
export const podPlace = (whose: string) => ({
  selector: text({
    description: "Label selector for the pods, in the syntax of `kubectl get pods --selector`.",
    maxLength: 1_024,
  }),
  namespace: Type.Optional(
    text({
      description: "Namespace of the pods. Default: the namespace of the service account.",
      maxLength: 63,
      pattern: "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
      expected: "the name of a namespace",
    }),
  ),
  port: port(`Port number of the ${whose}. Give either this or \`port-name\`.`),
  "port-name": Type.Optional(
    text({
      description: "Name of the container port to use, instead of `port`.",
      maxLength: 15,
      pattern: "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
      expected: "the name of a port",
    }),
  ),
});

/** Pods of Kubernetes whose port is given by its number or its name. */
export function withOnePort<Pods extends { readonly port: number | undefined; readonly portName: string | undefined }>({
  port,
  portName = "",
  ...pods
}: Pods) {
  return { ...pods, port: port ?? portName };
}

type PodPlace = ConfigTree["mesh"]["seed-pods"][number];

export function checkPods({ port, "port-name": portName }: PodPlace, path: Path): Problem[] {
  if ((port === undefined) !== (portName === undefined)) return [];
  return [{ path, message: "needs either port or port-name" }];
}

/** Identifies pods among others that are followed. */
export const nameOfPods = ({ namespace = "", selector }: PodPlace): string => `${namespace}/${selector}`;

/** @param written may end in a port, as a number or a name */
export function checkPortOf(written: string, path: Path): Problem[] {
  const { port } = splitPort(written);
  if (port === undefined || !/^\d+$/.test(port) || portOf(port) !== undefined) return [];
  return [{ path, message: `${port} is not a port from 1 to 65535` }];
}

/** @param server a name server: `ADDRESS` or `ADDRESS:PORT` */
export function checkServer(server: string, path: Path): Problem[] {
  const [, address = ""] = /^\[?(.*?)\]?(?::(\d+))?$/.exec(isIP(server) === 6 ? `[${server}]` : server) ?? [];
  if (isIP(address) === 0) return [{ path, message: `${JSON.stringify(server)} is not an IP address` }];
  return isIP(server) === 6 ? [] : checkPortOf(server, path);
}

export function checkTwice(names: readonly string[], path: Path): Problem[] {
  return names.flatMap((name, at) => {
    const first = names.indexOf(name);
    return first === at ? [] : [{ path: [...path, at], message: `is the same as element ${first}` }];
  });
}

export function splitNamespace(written: string): { namespace: string | undefined; name: string } {
  const slash = written.indexOf("/");
  return slash < 0
    ? { namespace: undefined, name: written }
    : { namespace: written.slice(0, slash), name: written.slice(slash + 1) };
}

export function splitPort(written: string): { name: string; port: string | undefined } {
  const colon = written.lastIndexOf(":");
  return colon < 0
    ? { name: written, port: undefined }
    : { name: written.slice(0, colon), port: written.slice(colon + 1) };
}

/** @returns undefined if the text is not a number from 1 to 65535 */
export function portOf(text: string | undefined): number | undefined {
  const port = text !== undefined && /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65_535 ? port : undefined;
}
