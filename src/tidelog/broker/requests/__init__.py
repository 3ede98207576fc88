"""From the bytes of a request to its handler, and back."""
