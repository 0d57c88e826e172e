import { Type } from "typebox";
import { list } from "./container.ts";
import { integer, text } from "./leaf.ts";

/** `_SERVICE._PROTOCOL.HOST`, as a pattern without its ends. */
export const recordsPattern = "_[A-Za-z0-9-]+\\._[A-Za-z]+\\.[A-Za-z0-9._-]+";

export const port = (description: string) => Type.Optional(integer({ description, minimum: 1, maximum: 65_535 }));

export const nameServers = (options: { readonly description: string; readonly flag?: string }) =>
  list(
    text({
      description: "An IP address, with a port if it is not 53; an IPv6 address with a port stands in brackets.",
      maxLength: 64,
      pattern: "^(\\d{1,3}(\\.\\d{1,3}){3}(:\\d{1,5})?|[0-9a-fA-F:]+|\\[[0-9a-fA-F:]+\\](:\\d{1,5})?)$",
      expected: "ADDRESS or ADDRESS:PORT",
    }),
    { ...options, maxItems: 8 },
  );

/** A service of Kubernetes and one of its ports. */
export const service = () =>
  text({
    description:
      "`NAMESPACE/NAME:PORT`. Without a namespace, the service account's own; the port is a number or the name of a port " +
      "of the service, and the first one when it is left out.",
    maxLength: 200,
    pattern: "^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(:[a-z0-9]([a-z0-9-]*[a-z0-9])?)?$",
    expected: "NAMESPACE/NAME:PORT",
  });

/** Pods of Kubernetes and one of their ports. @param whose in descriptions */
export const podPlace = (whose: string) => ({
  selector: text({
    description: "Labels that select the pods, as `kubectl get pods --selector` takes them.",
    maxLength: 1_024,
  }),
  namespace: Type.Optional(
    text({
      description: "The service account's own unless given.",
      maxLength: 63,
      pattern: "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
      expected: "the name of a namespace",
    }),
  ),
  port: port(`${whose} port, or else \`port-name\`.`),
  "port-name": Type.Optional(
    text({
      description: "Name of a port of the pods' containers, whose number then counts.",
      maxLength: 15,
      pattern: "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
      expected: "the name of a port",
    }),
  ),
});
