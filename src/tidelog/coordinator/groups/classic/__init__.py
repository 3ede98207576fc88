"""Classic groups: members assign among themselves, led by one of them; the coordinator takes care of who is in."""
