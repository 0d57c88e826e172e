// Runs another project's program, described by its argument (`PeerProcess` in JSON), and ends it when the bench is
// gone.
import { runPeerProcess } from "../peers/peer-process.ts";

runPeerProcess(process.argv[2] ?? "", process);
