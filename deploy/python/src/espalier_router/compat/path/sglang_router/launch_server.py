from espalier_router.compat.sglang_router import RouterArgs, launch_router

__all__ = ["RouterArgs", "launch_router"]
