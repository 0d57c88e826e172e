from espalier_router.compat.sglang_router import __version__

__all__ = ["__version__"]
