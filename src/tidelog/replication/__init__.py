"""One partition as its leader or follower knows it: ISR, log ends, high watermark, epochs. Pure."""
