"""What a machine believes to be the world: time, chance, processes, disks, a network."""
