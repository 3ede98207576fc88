"""Bugs of what finds rot, and of what mends it."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

ROT_MUTANTS: Final = (
    Mutant(
        "rot-read-unchecked",
        "storage.readable_log",
        "        check = self._range_check(offset, blocking) if checked else None\n",
        "        check = None\n",
        "a leader hands out what it reads, whatever that is",
    ),
    Mutant(
        "rot-not-mended",
        "broker.logs.repairs",
        "                self._waiting.append(_Repair(rot, log, now_ms))\n",
        "                pass\n",
        "a rotten batch that other replicas have is never read again",
    ),
)
