from espalier_router.compat.sglang_router import RouterArgs, launch_router, launch_server

__all__ = ["RouterArgs", "launch_router"]

if __name__ == "__main__":
    launch_server()
