// Runs somebody else's program, as its argument says (`PeerProcess` in JSON), and ends it when the bench goes away.
import { runPeerProcess } from "../peers/peer-process.ts";

runPeerProcess(process.argv[2] ?? "", process);
