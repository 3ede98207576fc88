"""What is done to logs beside appending and reading: compaction, scrubbing, repairs, moves between directories."""
