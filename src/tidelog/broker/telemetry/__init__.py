"""What clients measure and push to brokers (KIP-714): which client is asked for what, and what came."""
