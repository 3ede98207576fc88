"""A partition's log on disk: segments, indexes, producer state, checkpoints, retention, log directories.

Everything here is synchronous and knows no event loop: what must wait for a device is either asked for with
`blocking=False` (and answers `WouldBlock`), or handed out as a `DiskTask` that the caller runs in its pool of threads.

    LogManager          the broker's logs in all its log directories
      LogMaintenance    what is done to them from time to time, and after changes: flushes, retention, checkpoints
      LogDirectory      one entry of log.dirs: its lock, meta.properties, checkpoint files, and whether it still works
        Log             one partition: appended to, read, cut at either end; its parts are named in `log`
          Segment       a .log file with its indexes
          ProducerState idempotent and transactional producers, and their snapshots
"""
