"""``python -m espalier_router``: the command ``espalier``."""

from espalier_router._program import espalier

espalier()
