"""Compaction: of a log with `cleanup.policy=compact` the last value of every key stays, at its offset.

    clean                        dirty: not seen by the cleaner yet          never touched
    |--- gaps, one value a key --|--- first dirty offset ... boundary -------|-- lag, last stable offset, active --|

One cleaning reads the dirty part and notes each key's last offset (`key_map`). Then it writes the segments below the
boundary anew without the records that are superseded (`rewriting`), several small ones into one, and puts them in place
of the old ones (`replacement`):

    .log.cleaned   written, synced            a crash: removed, as if nothing had been
    .log.swap      complete                   a crash: the next start finishes the replacement
    .log           in place, old ones .deleted

`choice` says which log is next and how far it may be cleaned, `transactions` which batches were aborted and which
markers may go, `cleaning` does one log from begin to end, and `log_cleaner` all of a broker, one after the other, as
tasks that run in slices beside the thread that owns the logs.
"""
