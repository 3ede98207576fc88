"""One log, cleaned from begin to end, in slices.

A slice reads and writes in any thread; what it leads to happens between slices, in the thread that owns the log. There
it is also found out whether the log is still the one that the cleaning began with. Where it was cut, deleted, is being
moved to another directory, is compacted no more, or is to keep younger records than before, the cleaning is given up:
what it has replaced so far is as good as what was there before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.model.identifiers import Offset
from tidelog.records.compaction import RecordFilter
from tidelog.records.compression import DECOMPRESSED_SIZE_MAX
from tidelog.storage.append import decompressed_size_max
from tidelog.storage.cleaner.choice import segments_between
from tidelog.storage.cleaner.errors import Uncleanable
from tidelog.storage.cleaner.key_map import KeyMapper, make_key_map
from tidelog.storage.cleaner.replacement import cleaned_segment, create_cleaned, drop_cleaned, replace, sync_cleaned
from tidelog.storage.cleaner.rewriting import Counts, LastOfProducer, Rewriter, group_segments
from tidelog.storage.cleaner.transactions import CleanedTransactions

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.storage.cleaner.choice import LogToClean
    from tidelog.storage.cleaner.replacement import Remaining
    from tidelog.storage.cleaner.settings import CleanerSettings
    from tidelog.storage.log import Log
    from tidelog.storage.segment import Segment

logger = logging.getLogger(__name__)


class _Replacement(NamedTuple):
    """To be done by the owner of the log."""

    replaced: list[Segment]
    cleaned: Segment


class _Renaming:
    """The next step of the last replacement is to be done by the owner of the log."""


class Cleaning:
    """Made, and its `finish_slice` and `give_up` called, by the thread that owns the log."""

    def __init__(self, to_clean: LogToClean, settings: CleanerSettings, *, seed: bytes, now_ms: int) -> None:
        """`now_ms` is wall time: tombstones and markers whose horizon it has reached go. `seed` is the key map's."""
        self.log: Log = to_clean.log
        self.counts = Counts()
        """Of what was rewritten."""
        self.is_over = False
        """Whether there is nothing more to do: the log is clean up to `cleaned_to`."""
        self.cleaned_to = to_clean.first_dirty_offset
        self._to_clean = to_clean
        self._settings = settings
        self._seed = seed
        self._now_ms = now_ms
        self._chunk_bytes = settings.io_buffer_bytes // 2
        self._truncations = self.log.durability.truncations
        self._segments = self.log.segments
        self._producers = list(self.log.producers.entries.values())
        """As they are now; there may be very many, so that all else about them is for the thread of the slices."""
        self._steps = self._work()
        self._wanted: _Replacement | _Renaming | None = None
        """What the slice has led to."""
        self._steps_left: list[Remaining] = []
        """Of the last replacement."""
        self._cleaned: Segment | None = None
        """What is being written."""
        self._passed_over: int | None = None
        """Base offset of the first segment that stays as it was, since retention took others of its group."""

    @property
    def is_stale(self) -> bool:
        """Whether the log has been cut, is to be cut, serves no more, or is to keep more than when it was chosen."""
        log = self.log
        is_cut = log.durability.truncations != self._truncations or log.truncation_is_pending
        keeps_more = log.config.min_compaction_lag_ms > self._to_clean.lag_ms
        return is_cut or keeps_more or log.folder.is_deleted or log.is_offline

    @property
    def is_writing(self) -> bool:
        """Whether it touches only files that are not part of the log yet."""
        return self._cleaned is not None

    def run_slice(self, bytes_max: int) -> int:
        """Reads and writes about so many bytes; gives how many. In any thread.

        OSError; `Uncleanable`, `InvalidBatch` or `CorruptFile` where the files are not what they should be.
        """
        done = 0
        while done < bytes_max and self._wanted is None and not self.is_stale:
            step = next(self._steps, None)
            if step is None:
                self.is_over = True
                break
            if isinstance(step, _Replacement | _Renaming):
                self._wanted = step
            else:
                done += step
        return done

    def finish_slice(self) -> None:
        """Does what the slice has led to; not called for a cleaning that is to be given up. OSError."""
        wanted, self._wanted = self._wanted, None
        if isinstance(wanted, _Replacement):
            self._replace(wanted)
        elif wanted is not None:
            self.log.folder.finish_up_to(self._steps_left.pop(0).step)
        if self.is_over:
            if self._passed_over is not None:
                self.cleaned_to = max(min(self.cleaned_to, self._passed_over), self._to_clean.first_dirty_offset)
            self.log.cleaned_offset = Offset(self.cleaned_to)
            self.log.mark_changed()

    def _replace(self, wanted: _Replacement) -> None:
        replaced, cleaned = wanted
        steps: list[Remaining] | None = None
        try:
            steps = replace(self.log, replaced, cleaned)
        finally:
            if cleaned in self.log.segments:
                self._cleaned = None  # `give_up` must not remove it any more.
        if steps is not None:
            self._steps_left = steps
            return
        self._cleaned = None
        # Retention took what it was made from. Of that it is not missed; the others are dirty still.
        drop_cleaned(self.log, cleaned)
        left = [segment.base_offset for segment in replaced if segment in self.log.segments]
        if left and self._passed_over is None:
            self._passed_over = left[0]

    def give_up(self) -> None:
        """Removes what is half done, but ends what is half replaced. OSError."""
        self._steps.close()
        if self._steps_left and not self.log.is_offline:
            self.log.folder.finish_up_to(self._steps_left.pop().step)
        if self._cleaned is not None:
            drop_cleaned(self.log, self._cleaned)

    def _work(self) -> Generator[int | _Replacement | _Renaming, None, None]:
        log, start, boundary = self.log, self._to_clean.first_dirty_offset, self._to_clean.boundary_offset
        settings = self._settings
        keys = make_key_map(settings.dedupe_buffer_bytes, settings.dedupe_load_factor, boundary - start, self._seed)
        # What an append has let in is to be cleaned, too.
        size_max = max(DECOMPRESSED_SIZE_MAX, decompressed_size_max(log.config))
        mapper = KeyMapper(self._segments, keys, start, boundary, self._chunk_bytes, size_max)
        yield from mapper.run()
        end = mapper.latest_offset + 1
        if end <= start:
            raise Uncleanable(
                f"the batch at {start} has more keys than the map of {settings.dedupe_buffer_bytes} bytes takes:"
                f" raise log.cleaner.dedupe.buffer.size"
            )
        delete_horizon_ms = self._now_ms + log.config.delete_retention_ms
        producers = {
            entry.producer_id: LastOfProducer(
                entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch
            )
            for entry in self._producers
        }
        last_offsets = frozenset((*(last.last_data_offset for last in producers.values()), boundary - 1))
        rewriter = Rewriter(
            self._segments,
            RecordFilter(keys, mapper.latest_offset, self._now_ms, delete_horizon_ms, last_offsets),
            CleanedTransactions(),
            producers=producers,
            upper_bound_offset=boundary,
            now_ms=self._now_ms,
            delete_horizon_ms=delete_horizon_ms,
            chunk_bytes=self._chunk_bytes,
            decompressed_size_max=size_max,
        )
        self.counts = rewriter.counts
        for group in group_segments(segments_between(self._segments, 0, end), log.config, boundary):
            cleaned = self._cleaned = cleaned_segment(log, group[0].base_offset, self._now_ms)
            create_cleaned(cleaned)
            yield from rewriter.run(group, cleaned)
            sync_cleaned(cleaned)
            yield _Replacement(group, cleaned)
            while self._steps_left:
                self._steps_left[0].sync()
                yield _Renaming()
            log.folder.at_current_path(log.folder.disk.fsync_directory)
        self.cleaned_to = end
