"""Groups of the next-generation consumer protocol (KIP-848). Pure.

groups     finds a request's, deadline's or record's group      heartbeat, guests   what the two protocols ask of it
group      a group as its records say                           change              a change, step by step:
member     its members                                          target              who is to have what
records    the records' form                                    reconciliation      how a member gets there
"""
