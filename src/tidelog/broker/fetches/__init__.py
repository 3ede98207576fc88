"""What leaders answer to the fetches of followers, and what the fetches of consumers share with that."""
