/* Records what a program writes below a folder, in order, with what it syncs:
   loaded before the C library. A record is a line

       what inode offset length name

   and `length` bytes behind it. Shared memory is left out: no power cut leaves
   anything of it that is believed. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The name below the folder, or nothing. */
static const char *below(const char *path)
{
    const char *folder = getenv("WRITTEN_BELOW");
    size_t length = folder ? strlen(folder) : 0;
    if (!length || strncmp(path, folder, length) != 0)
        return NULL;
    if (path[length] == 0)
        return ".";
    if (path[length] != '/' || strstr(path, "-shm"))
        return NULL;
    return path + length + 1;
}

static void record(const char *what, ino_t inode, long long offset, size_t length,
                   const char *name, const void *data)
{
    char *text = malloc(PATH_MAX + 128 + length);
    int head = sprintf(text, "%s %llu %lld %zu %s\n", what, (unsigned long long)inode,
                       offset, length, name);
    if (length)
        memcpy(text + head, data, length);
    int fd = open(getenv("WRITTEN_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || syscall(SYS_write, fd, text, head + length) != (long)(head + length))
        abort();
    close(fd);
    free(text);
}

/* What the descriptor is of, if it is recorded. */
static const char *of(int fd, char *path, struct stat *stat)
{
    char link[64];
    sprintf(link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return NULL;
    path[length] = 0;
    return fstat(fd, stat) == 0 ? below(path) : NULL;
}

static void changed(const char *what, int fd, long long offset, size_t length, const void *data)
{
    char path[PATH_MAX];
    struct stat stat;
    const char *name = of(fd, path, &stat);
    if (name)
        record(what, stat.st_ino, offset, length, name, data);
}

static void synced(int fd)
{
    changed("sync", fd, 0, 0, NULL);
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
    const char *name = below(path);
    int is_new = name && (flags & O_CREAT) && access(path, F_OK) != 0;
    int fd = real(path, flags, mode);
    if (fd >= 0 && is_new)
        changed("create", fd, 0, 0, NULL);
    else if (fd >= 0 && name && (flags & O_TRUNC))
        changed("truncate", fd, 0, 0, NULL);
    return fd;
}

#define OPEN(name)                                              \
    int name(const char *path, int flags, ...)                  \
    {                                                           \
        va_list rest;                                           \
        va_start(rest, flags);                                  \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                           \
        return opened(REAL(name), path, flags, mode);           \
    }
OPEN(open)
OPEN(open64)

ssize_t write(int fd, const void *data, size_t length)
{
    long long offset = lseek(fd, 0, SEEK_CUR);
    struct stat stat;
    if (offset >= 0 && fcntl(fd, F_GETFL) & O_APPEND && fstat(fd, &stat) == 0)
        offset = stat.st_size;
    ssize_t written = REAL(write)(fd, data, length);
    if (written > 0 && offset >= 0)
        changed("write", fd, offset, written, data);
    return written;
}

#define PWRITE(name, offset_t)                                               \
    ssize_t name(int fd, const void *data, size_t length, offset_t offset)   \
    {                                                                        \
        ssize_t written = REAL(name)(fd, data, length, offset);              \
        if (written > 0)                                                     \
            changed("write", fd, offset, written, data);                     \
        return written;                                                      \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, offset_t)                       \
    int name(int fd, offset_t size)                    \
    {                                                  \
        int done = REAL(name)(fd, size);               \
        if (done == 0)                                 \
            changed("truncate", fd, size, 0, NULL);    \
        return done;                                   \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(name)                    \
    int name(int fd)                  \
    {                                 \
        int done = REAL(name)(fd);    \
        if (done == 0)                \
            synced(fd);               \
        return done;                  \
    }
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path)
{
    struct stat stat;
    const char *name = lstat(path, &stat) == 0 ? below(path) : NULL;
    int done = REAL(unlink)(path);
    if (done == 0 && name)
        record("unlink", stat.st_ino, 0, 0, name, NULL);
    return done;
}

/* Nothing that is recorded is renamed; it would have to be replayed. */
int rename(const char *from, const char *to)
{
    if (below(from) || below(to))
        abort();
    return REAL(rename)(from, to);
}
