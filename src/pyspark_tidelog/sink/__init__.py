"""Writes DataFrames into topics: `df.write.format("tidelog")` and `writeStream`, each row exactly once by default.

    task      rows -> partitions -> encoded batches -> a private topic (staging)     any attempt, any number of times
    driver    the winners' batches -> their topics, with the mark, in one transaction     once, when all tasks are done

A task attempt that fails, loses a speculative race or lives on as a zombie only leaves bytes in the private topic that
nothing names. The driver's transaction holds the winners' batches and the batch's number (the mark), so that both are
there or neither: a driver that is killed anywhere leaves an open transaction, which its successor aborts, or a mark,
which its successor reads. With `delivery` at-least-once tasks append to the topics themselves.
"""
