"""What a broker tells of itself: metrics for Prometheus, and health; read when asked, by a listener of its own."""
