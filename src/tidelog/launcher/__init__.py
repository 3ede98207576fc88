"""Clusters on this machine: a broker in this process; later the supervisor of broker processes."""
