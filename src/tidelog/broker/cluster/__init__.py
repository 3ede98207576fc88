"""This broker's place in the cluster: the controller's shell, the way to it, the metadata, membership and settings."""
