"""One log's life, crashed at every change of its disk."""
