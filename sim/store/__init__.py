"""The metadata store of a simulated cluster: its machine, its sessions, its ensemble, all that it ever held."""
