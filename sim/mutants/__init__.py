"""Bugs put into the product on purpose, to see whether the simulator finds them."""
