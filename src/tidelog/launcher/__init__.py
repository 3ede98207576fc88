"""Clusters on this machine: brokers in this process, one from a file, or the supervisor of broker processes."""
