"""Topics read from the files of brokers, or from copies of these: `.option("segments", DIR)`, without a broker's work.

    directories   which folder of which log directory has a partition, and what the checkpoints beside it say
    epochs        which of several replicas count where one has overruled another
    agreement     up to where a folder's records are the leader's
    partition     one partition's folder: where a record lies, what was aborted, how far it is decided
    pieces        the bytes of a range, a few megabytes of whole batches at a time
    catalog       topics and offsets for a plan, where no broker is to be asked

A broker may write, roll, compact and remove beside a reader. What makes that safe:

- Only records below the high watermark that the broker has noted in its directory are read: they are never cut off.
  With `read_committed` it is the last stable offset at that high watermark, so that every transaction below is decided
  in the same files.
- Records that another leader overruled (an unclean election) are known by their leader epochs, where a broker or a
  replica with later epochs is there.
- A reader goes by offsets. It looks for the next segment when it is done with one, and passes over what it has.
- Transaction indexes are read before the segment that they are about is opened: compaction puts a segment's log in
  place before its indexes, and removes the records of aborted transactions together with their entries.
- What cannot be read is left to the broker, where there is one.
"""
