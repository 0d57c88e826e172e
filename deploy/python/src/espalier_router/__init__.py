"""Espalier, a router tier for LLM engines, as a child process of Python.

>>> import espalier_router
>>> config = {"engines": ["http://127.0.0.1:8000"], "listen": {"port": 0}, "admin": {"port": 0}}
>>> with espalier_router.launch(config) as router:
...     print(router.url)
"""

from espalier_router._launch import EngineSim, LaunchError, Router, launch, launch_engine_sim

__all__ = ["EngineSim", "LaunchError", "Router", "launch", "launch_engine_sim"]
