"""One module a family of golden vectors: `FILES` and `check(case)`, or `cases(directory)`; and `unjudged(directory)`."""
