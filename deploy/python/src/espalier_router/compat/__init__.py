"""The interfaces of other routers' Python packages, served by Espalier."""
