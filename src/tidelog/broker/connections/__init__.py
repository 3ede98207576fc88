"""Bytes and requests: the server's connections, their answers, their bounds, and the connections to other brokers."""
