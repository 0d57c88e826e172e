// Runs another project's program, described by its argument (`ForeignProcess` in JSON), and ends it when the bench is
// gone.
import { runForeignProcess } from "../support/foreign-process.ts";

runForeignProcess(process.argv[2] ?? "", process);
