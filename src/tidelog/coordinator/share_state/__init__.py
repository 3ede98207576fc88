"""What leaders of share partitions have stored: the coordinator of one partition of `__share_group_state`. Pure.

events        what it is asked, and what it answers
state         the state of one share partition, and its records
coordinator   routes and fences
"""
