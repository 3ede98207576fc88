"""Bugs in what brokers know of ACLs and users, put in on purpose: see `sim.mutants`, whose list they lengthen."""

from __future__ import annotations

from typing import Final

from sim.mutants.mutant import Mutant

ACCESS_MUTANTS: Final = (
    Mutant(
        "acls-in-force-later",
        "broker.cluster.stored_security",
        "            authorizer.set_acls(pattern, (await self._read_patterns(store, [pattern]))[pattern])\n",
        "",
        "a changed ACL is in force at the asked broker when its notification comes, after the answer",
    ),
    Mutant(
        "decisions-remembered",
        "security.authorizer",
        "if not self.revision.is_current or ",
        "if ",
        "a connection goes on with what was decided for it by former ACLs",
    ),
    Mutant(
        "acls-missed-between-sessions",
        "broker.cluster.store_follower",
        "        await self._followed.read_all(store)\n",
        "        if self._session is None and not self._notifications:\n"
        "            await self._followed.read_all(store)\n",
        "a broker whose session with the store has ended takes changes of ACLs meanwhile for read",
    ),
    Mutant(
        "refused-and-written",
        "broker.handlers.produce",
        "        or not authorize(context, Operation.WRITE, ResourceType.TOPIC, topic, quiet=True)\n"
        "    ):\n"
        "        # Denials are logged there.\n",
        "    ):\n        return NotImplemented\n"
        "    if not authorize(context, Operation.WRITE, ResourceType.TOPIC, topic):\n"
        "        try:\n"
        "            node.replicas.append(replica, body[position : position + size], required_acks=acks)\n"
        "        except KafkaError:\n"
        "            pass\n",
        "a record is refused, and written",
    ),
    Mutant(
        "deleted-user-enters",
        "broker.cluster.stored_security",
        "                self._credentials.pop(user, None)\n",
        "                pass\n",
        "a user whose password was deleted can still log in",
    ),
)
