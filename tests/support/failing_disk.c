/* A disk that fails, or a process that is killed, at a call of the test's choice:
   loaded before the C library.

       FAILING_IF     while this file is there,
       FAILING_BELOW  the calls on files whose paths begin so count,
       FAILING_CALLS  those of them that are named here,
       FAILING_FROM   and from this one on, 1 being the first,
       FAILING_TIMES  so many
       FAILING_WITH   fail with this errno; 0 kills the process instead
       FAILING_SEEN   and leave this file behind. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

/* Whether this call on the file at `path` is to fail; errno says how. */
static int path_fails(const char *call, const char *path)
{
    static atomic_long count;
    const char *below = getenv("FAILING_BELOW");
    const char *calls = getenv("FAILING_CALLS");
    if (!below || !calls || strncmp(path, below, strlen(below)) != 0 || !strstr(calls, call))
        return 0;
    if (access(getenv("FAILING_IF"), F_OK) != 0)
        return 0;
    long nth = atomic_fetch_add(&count, 1) + 1 - number("FAILING_FROM");
    if (nth < 0 || nth >= number("FAILING_TIMES"))
        return 0;
    int seen = syscall(SYS_openat, AT_FDCWD, getenv("FAILING_SEEN"), O_WRONLY | O_CREAT, 0600);
    if (seen >= 0)
        syscall(SYS_close, seen);
    if (number("FAILING_WITH") == 0)
        kill(getpid(), SIGKILL);
    errno = (int)number("FAILING_WITH");
    return 1;
}

static int fails(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    if (!getenv("FAILING_BELOW"))
        return 0;
    sprintf(link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return path_fails(call, path);
}

#define OPEN(name)                                                \
    int name(const char *path, int flags, ...)                    \
    {                                                             \
        va_list rest;                                             \
        va_start(rest, flags);                                    \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                             \
        if (path_fails("open", path))                             \
            return -1;                                            \
        return REAL(name)(path, flags, mode);                     \
    }
OPEN(open)
OPEN(open64)

#define CALL(kind, result, name, parameters, arguments) \
    result name parameters                              \
    {                                                   \
        if (fails(kind, fd))                            \
            return -1;                                  \
        return REAL(name) arguments;                    \
    }
CALL("read", ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
CALL("read", ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
CALL("read", ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
CALL("write", ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
CALL("write", ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at),
     (fd, data, size, at))
CALL("write", ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at),
     (fd, data, size, at))
CALL("truncate", int, ftruncate, (int fd, off_t size), (fd, size))
CALL("truncate", int, ftruncate64, (int fd, off64_t size), (fd, size))
CALL("sync", int, fsync, (int fd), (fd))
CALL("sync", int, fdatasync, (int fd), (fd))

int unlink(const char *path)
{
    if (path_fails("unlink", path))
        return -1;
    return REAL(unlink)(path);
}
