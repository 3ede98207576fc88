"""What an older version left behind, and brokers of both versions side by side."""
