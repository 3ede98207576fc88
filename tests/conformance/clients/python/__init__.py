"""The Python clients' workers."""
