"""What is noted while a cluster runs, and compared: what clients were told, what disks hold, what brokers log."""
