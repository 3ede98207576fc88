"""How the last owner of a log directory stopped, and what this one leaves for the next start to know.

    .kafka_cleanshutdown    there after a clean stop only: nothing needs recovery
    segment-sizes           bytes of each segment at that stop
    boot-id                 the boot of the machine since which the logs here are known to be complete
    disk-failed             the boot in which the directory went offline: until the next start

After a failed fsync the kernel may show bytes that it will never write, and the next fsync would succeed without them.
So a start finds `disk-failed` and writes again what was not known to be durable, unless the machine was booted anew.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.ports.disk import replace_file
from tidelog.storage.checkpoints import (
    CleanShutdown,
    decode_clean_shutdown,
    decode_segment_sizes,
    encode_clean_shutdown,
    encode_segment_sizes,
)
from tidelog.storage.errors import CorruptFile
from tidelog.storage.file_names import BOOT_ID, CLEAN_SHUTDOWN, DISK_FAILED, SEGMENT_SIZES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.model.identifiers import TopicPartition
    from tidelog.ports.disk import Disk

logger = logging.getLogger(__name__)


class LastStop:
    """That of one directory, by the owner of its lock."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.was_clean = False
        """Whether the last owner closed everything."""
        self.may_lack_tails = False
        """Whether the last owner did not, and the machine was booted anew since: what was not flushed may be gone from
        the end of any log here."""
        self.has_failed = False
        """Whether the directory went offline in its last owner's time, and the machine has been up since: what is not
        known to be durable is to be written again."""
        self.sizes: Mapping[TopicPartition, Mapping[int, int]] = {}
        """Bytes of each segment at a clean stop, by base offset; nothing of a partition of which they are not known."""

    # What the last owner has left.

    def read(self) -> None:
        """Finds out how it stopped. A clean stop is forgotten here: a crash from now on needs recovery. OSError."""
        self.has_failed = self._is_marked_failed()
        clean = f"{self._path}/{CLEAN_SHUTDOWN}"
        if self._disk.exists(clean):
            self.was_clean = True
            self.sizes = self._read_sizes(decode_clean_shutdown(self._disk.read(clean)))
            # Gone before anything is written.
            self._disk.unlink(clean)
            self._disk.fsync_directory(self._path)

    def _is_marked_failed(self) -> bool:
        """Whether a failure was noted on this boot; also where either boot is not known."""
        try:
            noted = self._disk.read(f"{self._path}/{DISK_FAILED}").decode("ascii", "replace").strip()
        except FileNotFoundError:
            return False
        boot_id = self._disk.boot_id()
        return not noted or boot_id is None or noted == boot_id

    def _read_sizes(self, stop: CleanShutdown) -> dict[TopicPartition, dict[int, int]]:
        """What segments had at the stop; nothing where it is not known: another version was the last to stop."""
        path = f"{self._path}/{SEGMENT_SIZES}"
        try:
            broker_epoch, sizes = decode_segment_sizes(self._disk.read(path))
        except FileNotFoundError:
            return {}
        except CorruptFile as error:
            logger.warning("segment_sizes_ignored: path=%s reason=%s", path, error)
            return {}
        return sizes if broker_epoch == stop.broker_epoch else {}

    def is_same_boot(self) -> bool:
        """Whether the machine has been up since the logs were known to be complete; false where that is not known."""
        try:
            known = self._disk.read(f"{self._path}/{BOOT_ID}").decode("ascii", "replace").strip()
        except FileNotFoundError:
            return False  # An earlier version was the last to run here.
        return bool(known) and known == self._disk.boot_id()

    # What has been taken account of.

    def logs_loaded(self, *, has_logs: bool) -> None:
        """Finds out whether they may lack their tails. Blocks. OSError."""
        self.may_lack_tails = has_logs and not self.was_clean and not self.is_same_boot()
        if not self.may_lack_tails:
            try:
                self.keep_boot_id()
            except OSError as error:
                # A full disk, for one. After a crash the logs are then taken for ones that may lack their tails.
                logger.warning("boot_id_not_written: path=%s error=%s", self._path, error)

    def keep_boot_id(self) -> None:
        """Notes that the logs are complete as of this boot: none was missing anything at the start, or elections have
        taken account of what may be. Blocks. OSError.
        """
        boot_id = self._disk.boot_id()
        if boot_id is not None and not self.is_same_boot():
            replace_file(self._disk, f"{self._path}/{BOOT_ID}", f"{boot_id}\n".encode())
        self.may_lack_tails = False

    def failure_heeded(self) -> None:
        """What had to be written again was. Blocks. OSError."""
        with suppress(FileNotFoundError):
            self._disk.unlink(f"{self._path}/{DISK_FAILED}")

    # What the next start is to know.

    def note_failure(self) -> None:
        """The directory goes offline; the mark need not be durable, since a boot makes it void. In any thread."""
        try:
            file = self._disk.open(f"{self._path}/{DISK_FAILED}", create=True)
            try:
                file.pwrite(f"{self._disk.boot_id() or ''}\n".encode(), 0)
            finally:
                file.close()
        except OSError as error:
            logger.warning("failure_not_noted: path=%s error=%s", self._path, error)

    def note_clean(self, broker_epoch: int, sizes: Mapping[TopicPartition, Mapping[int, int]]) -> None:
        """All is closed and durable, with these bytes in each segment. OSError.

        Logs that may lack their tails are to say so again at the next start: after a clean stop it would take them for
        complete. So nothing is noted of them.
        """
        if self.may_lack_tails:
            return
        if broker_epoch >= 0:
            replace_file(self._disk, f"{self._path}/{SEGMENT_SIZES}", encode_segment_sizes(broker_epoch, sizes))
        shutdown = encode_clean_shutdown(CleanShutdown(broker_epoch))
        replace_file(self._disk, f"{self._path}/{CLEAN_SHUTDOWN}", shutdown)
