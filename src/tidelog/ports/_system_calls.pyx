# cython: language_level=3
"""`tidelog.ports.system_calls` in C: it says what each function does."""

from libc.errno cimport errno

cdef extern from *:
    """
    #include <errno.h>
    #include <stdlib.h>
    #include <unistd.h>
    #if defined(__linux__)
    #include <sys/prctl.h>
    static int tidelog_syncfs(int descriptor) { return syncfs(descriptor); }
    static void tidelog_signal_at_parents_death(int number) { prctl(PR_SET_PDEATHSIG, number); }
    #else
    static int tidelog_syncfs(int descriptor) { errno = ENOSYS; return -1; }
    static void tidelog_signal_at_parents_death(int number) {}
    #endif
    #if defined(__GLIBC__)
    #include <malloc.h>
    static void tidelog_malloc_trim(void) { malloc_trim(0); }
    #else
    static void tidelog_malloc_trim(void) {}
    #endif
    """
    int tidelog_syncfs(int descriptor) nogil
    void tidelog_signal_at_parents_death(int number)
    void tidelog_malloc_trim()


def syncfs(int descriptor):
    cdef int result, reason
    with nogil:
        result = tidelog_syncfs(descriptor)
        reason = errno
    return 0 if result == 0 else reason


def signal_at_parents_death(int number):
    tidelog_signal_at_parents_death(number)


def malloc_trim():
    tidelog_malloc_trim()
