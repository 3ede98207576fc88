"""Groups of the next-generation consumer protocol (KIP-848). Pure.

groups                  finds the group of a request, a deadline or a record
heartbeat               what members of the newer protocol ask
classic_compatibility   what members that speak the classic protocol ask
change                  a change, step by step: `target` (which member is to have which partitions),
                        `reconciliation` (how a member gets there)
group, member           a group and its members, as their records say
records                 the form of the records
"""
