"""System calls: compiled, and by ctypes where nothing was built."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PR_GET_PDEATHSIG: Final = 2
BEGIN: Final = {
    "compiled": "from tidelog.ports import system_calls\n",
    "ctypes": "import sys\nsys.modules['tidelog.ports._system_calls'] = None\nfrom tidelog.ports import system_calls\n",
}
"""What imports the module in a fresh process, as it is here, and as where there was no compiler."""
ways = pytest.mark.parametrize("way", BEGIN)


def printed(way: str, program: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", BEGIN[way] + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@ways
def test_a_file_system_is_written_to_its_device(way: str, tmp_path: Path) -> None:
    """0, or what is wrong with the descriptor."""
    program = (
        "import os, sys\n"
        "descriptor = os.open(sys.argv[1], os.O_RDONLY)\n"
        "print(system_calls.syncfs(descriptor))\n"
        "os.close(descriptor)\n"
        "print(system_calls.syncfs(descriptor))\n"
    )
    assert printed(way, program, str(tmp_path)) == ["0", str(errno.EBADF)]


@ways
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux has it")
def test_a_process_hears_of_its_parents_death(way: str) -> None:
    """By the signal that it asked for."""
    program = (
        "import ctypes\n"
        f"system_calls.signal_at_parents_death({signal.SIGCONT:d})\n"
        "asked = ctypes.c_int()\n"
        f"ctypes.CDLL(None).prctl({PR_GET_PDEATHSIG}, ctypes.byref(asked))\n"
        "print(asked.value)\n"
    )
    assert printed(way, program) == [str(int(signal.SIGCONT))]


@ways
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the GNU C library alone gives pages back")
def test_free_pages_of_the_heap_are_given_back(way: str) -> None:
    """Here 20 MB, below a block that stays."""
    program = (
        "import os\n"
        "def pages():\n"
        "    with open('/proc/self/statm') as file:\n"
        "        return int(file.read().split()[1])\n"
        "blocks = [bytearray(2000) for _ in range(10_000)]\n"
        "last = bytearray(2000)\n"
        "del blocks\n"
        "before = pages()\n"
        "system_calls.malloc_trim()\n"
        "print(before - pages())\n"
    )
    (freed,) = printed(way, program)
    assert int(freed) * os.sysconf("SC_PAGESIZE") > 15_000_000


def test_ctypes_is_not_loaded_where_the_calls_are_compiled() -> None:
    """It is what the compiled module is for."""
    pytest.importorskip("tidelog.ports._system_calls", reason="not built")
    assert printed("compiled", "import sys\nprint('ctypes' in sys.modules)\n") == ["False"]
