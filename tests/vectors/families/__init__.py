"""One module a family of golden vectors: `FILES` and `check(case)`, or `cases(directory)`.

`unjudged(directory)`, where there is one, names what lies there and is not judged.
"""
