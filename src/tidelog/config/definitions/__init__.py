"""The rows of the registry, a module a subject."""
