"""Starts engines and a router of two processes, forks, prints the numbers of all, and waits to be killed."""

import os
import signal
import subprocess

import espalier_router

sim = espalier_router.launch_engine_sim("--port", "0")
config = {"engines": sim.urls, "listen": {"port": 0}, "admin": {"port": 0}, "processes": 2}
router = espalier_router.launch(config)
fork = os.fork()
if fork == 0:
    signal.pause()
rows = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True, check=True).stdout
members = [pid for pid, parent in (row.split() for row in rows.splitlines()) if int(parent) == router.pid]
print(fork, sim.pid, router.pid, *members, flush=True)
signal.pause()
