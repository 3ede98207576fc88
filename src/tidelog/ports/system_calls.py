"""System calls that Python's library does not have: compiled where that was built, else by ctypes.

ctypes and libffi take 0.4 MiB of a process.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:

    def syncfs(descriptor: int) -> int:
        """Writes the file system that a descriptor is on to its device; 0, or the errno that says why it could not."""
        ...

    def signal_at_parents_death(number: int) -> None:
        """Asks for a signal to this process when its parent dies."""

    def malloc_trim() -> None:
        """Gives whole free pages of the heap back to the system, where the C library is GNU's."""

else:
    try:
        from tidelog.ports._system_calls import malloc_trim, signal_at_parents_death, syncfs
    except ImportError:
        import ctypes

        _PR_SET_PDEATHSIG: Final = 1
        """Of prctl(2)."""
        _libc = ctypes.CDLL(None, use_errno=True)

        def syncfs(descriptor):
            return 0 if _libc.syncfs(descriptor) == 0 else ctypes.get_errno()

        def signal_at_parents_death(number):
            _libc.prctl(_PR_SET_PDEATHSIG, number)

        def malloc_trim():
            if hasattr(_libc, "malloc_trim"):  # The GNU C library's; musl has none.
                _libc.malloc_trim(0)


__all__ = ["malloc_trim", "signal_at_parents_death", "syncfs"]
