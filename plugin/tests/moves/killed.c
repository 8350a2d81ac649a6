/* Kills a program behind one of its steps, of what it does below a folder and of
   what goes over its connections: loaded before the C library. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_below(const char *path)
{
    const char *folder = getenv("KILLED_BELOW");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_meant(int fd)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0)
        return 0;
    if (S_ISSOCK(stat.st_mode))
        return 1;
    char link[64], path[PATH_MAX];
    sprintf(link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_below(path);
}

static void step(void)
{
    static int steps;
    const char *last = getenv("KILLED_BEHIND");
    if (last && __sync_add_and_fetch(&steps, 1) == atoi(last))
        kill(getpid(), SIGKILL);
}

#define OPEN(name)                                                \
    int name(const char *path, int flags, ...)                    \
    {                                                             \
        va_list rest;                                             \
        va_start(rest, flags);                                    \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                             \
        int is_new = is_below(path) && flags & O_CREAT;           \
        int fd = REAL(name)(path, flags, mode);                   \
        if (is_new)                                               \
            step();                                               \
        return fd;                                                \
    }
OPEN(open)
OPEN(open64)

#define ON_FILE(type, name, params, ...) \
    type name params                     \
    {                                    \
        type done = REAL(name)(fd, ##__VA_ARGS__); \
        if (is_meant(fd))                \
            step();                      \
        return done;                     \
    }
ON_FILE(ssize_t, write, (int fd, const void *data, size_t length), data, length)
ON_FILE(ssize_t, pwrite, (int fd, const void *data, size_t length, off_t offset), data, length, offset)
ON_FILE(ssize_t, pwrite64, (int fd, const void *data, size_t length, off64_t offset), data, length, offset)
ON_FILE(ssize_t, send, (int fd, const void *data, size_t length, int flags), data, length, flags)
ON_FILE(ssize_t, recv, (int fd, void *data, size_t length, int flags), data, length, flags)
ON_FILE(int, ftruncate, (int fd, off_t size), size)
ON_FILE(int, ftruncate64, (int fd, off64_t size), size)
ON_FILE(int, fsync, (int fd))
ON_FILE(int, fdatasync, (int fd))

int unlink(const char *path)
{
    int done = REAL(unlink)(path);
    if (is_below(path))
        step();
    return done;
}

int rename(const char *from, const char *to)
{
    int done = REAL(rename)(from, to);
    if (is_below(to))
        step();
    return done;
}
