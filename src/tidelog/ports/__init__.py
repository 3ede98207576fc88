"""What the outside must offer: a clock, randomness, a disk, a network.

The packages below the broker know these only as Protocols, handed in through constructors. `ports.real` implements them
with the operating system, `sim` implements them with a seed. There is no global instance of any of them.
"""
