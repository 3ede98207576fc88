"""Classic groups: members assign among themselves, led by one of them; the coordinator keeps the membership."""
