"""Programs that use real clients, one a client, and what drives and judges them together.

    harness.py      starts, orders, pauses and kills workers; waits for what they say
    judge.py        pure: whether what they said can be true of a correct cluster
    python/ java/ go/ node/ kcat.py     the workers

A worker is a process. Its arguments are `name=value`; what it does is told in lines of JSON on standard output,
each with `event` and `at` (wall time, seconds); the line `leave` on standard input, or its end, makes it stop cleanly.

    role=consume    name bootstrap group topic [assignor] [protocol] [instance] [session_timeout_ms] [commit=sync|async]
    role=copy       the same, and output, transactional_id: consume, transform, produce, in transactions
    role=transact   name bootstrap topic transactional_id transactions records abort_every: of so many one is aborted

    event           fields
    ready           client, version                   it is there; it has not joined yet
    assigned        partitions: [topic, partition]    what it owns from now on, besides what it owns already;
                    generation, member                where the client tells them
    revoked, lost   partitions                        what it owns no longer; `lost`: it was put out, and finds out now
    consumed        records: [topic, partition, [offset]]
    committed       offsets: [topic, partition, offset]   acknowledged
    refused         error                             a commit that was not
    begin           number                            a transaction of role=transact
    transaction     number, outcome                   acknowledged; its values are NAME-number-record
    copied          outcome, records: [topic, partition, [offset]]
    error           error                             which did not end it
    fatal           error                             which does
    left            the last line of a clean end
"""
