"""The metadata store of a simulated cluster: its machine, its sessions, its ensemble, the history of its nodes."""
