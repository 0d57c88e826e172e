from espalier_router.compat.sglang_router import RouterArgs

__all__ = ["RouterArgs"]
