from espalier_router.compat.sglang_router import RouterArgs, launch_router, main

__all__ = ["RouterArgs", "launch_router", "main"]

if __name__ == "__main__":
    main()
