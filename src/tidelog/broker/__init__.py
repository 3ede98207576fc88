"""A node: the server, the handlers (a file an API), the purgatory, the replicas, and the shell that runs them."""
