from espalier_router.compat.sglang_router import RouterArgs, launch_router, main, parse_router_args

__all__ = ["RouterArgs", "launch_router", "main", "parse_router_args"]

if __name__ == "__main__":
    main()
