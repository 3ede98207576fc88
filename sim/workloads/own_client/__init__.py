"""The product's own client at work: topics that change under it, producers, members of groups, what must come of it."""
