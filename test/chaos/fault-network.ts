import { tellChaos } from "./chaos-report.ts";
import { type Fault, type FaultProxy, startFaultProxy } from "./fault-proxy.ts";

/** The wires between routers, each of which listens behind a proxy and is known to the others by the proxy's address. */
export interface FaultNetwork {
  /** Lays the wires to a router, which listens at whatever port `targetPort` says. @returns `host:port` to dial */
  addRouter(router: string, targetPort: () => number): Promise<string>;
  /** What one router sends to the other one meets this fault from now on, whoever of them has dialed. */
  setOneWay(from: string, to: string, fault: Fault | undefined): void;
  /** The same in both directions. */
  set(one: string, other: string, fault: Fault | undefined): void;
  /** Breaks every connection between two routers. */
  reset(one: string, other: string): void;
  heal(): void;
  close(): void;
}

export function createFaultNetwork(): FaultNetwork {
  const proxies = new Map<string, FaultProxy>();
  const faults = new Map<string, Fault>();
  /** A router names itself in the first frame that it sends, and others only after that. */
  const dialerOf = (opening: string): string | undefined => {
    const places = [...proxies.keys()].map((name) => ({ name, at: opening.indexOf(name) }));
    return places.filter(({ at }) => at >= 0).sort((one, other) => one.at - other.at)[0]?.name;
  };
  const changed = (): void => {
    for (const proxy of proxies.values()) proxy.faultsChanged();
  };
  const setOneWay: FaultNetwork["setOneWay"] = (from, to, fault) => {
    if (fault) tellChaos({ fault: `link: ${fault.kind}` });
    if (fault) faults.set(`${from}>${to}`, fault);
    else faults.delete(`${from}>${to}`);
    changed();
  };
  return {
    async addRouter(router, targetPort) {
      const proxy = await startFaultProxy({
        targetPort,
        fault(direction, opening) {
          const dialer = dialerOf(opening);
          return faults.get(direction === "to-target" ? `${dialer}>${router}` : `${router}>${dialer}`);
        },
      });
      proxies.set(router, proxy);
      return `127.0.0.1:${proxy.port}`;
    },
    setOneWay,
    set(one, other, fault) {
      setOneWay(one, other, fault);
      setOneWay(other, one, fault);
    },
    reset(one, other) {
      tellChaos({ fault: "link: reset" });
      proxies.get(one)?.reset((opening) => dialerOf(opening) === other);
      proxies.get(other)?.reset((opening) => dialerOf(opening) === one);
    },
    heal() {
      faults.clear();
      changed();
    },
    close() {
      for (const proxy of proxies.values()) proxy.close();
    },
  };
}
