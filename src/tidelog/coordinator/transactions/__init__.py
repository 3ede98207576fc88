"""What a broker decides for transactional producers. Pure.

One `TransactionCoordinator` is the state of one partition of `__transaction_state`: which transactional id owns which
producer id and epoch, which partitions a transaction has, and how far its end has come. It has the same shape as the
group coordinator: `handle(now_ms, event) -> TransactionResult`, `replay(record)` the only mutator of what is in the
log. The shell (`broker.coordinators.transactions`) appends a result's records, and when they are committed gives its
replies and has its markers written (`broker.coordinators.marker_sender`), which come back as an event.
"""
