"""Espalier in the place of sglang-router."""

from espalier_router.compat.sglang_router import RouterArgs, __version__, launch_router

__all__ = ["RouterArgs", "__version__", "launch_router"]
