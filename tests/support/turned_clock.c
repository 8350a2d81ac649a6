/* A clock that tests turn, for programs that know of none: loaded before the C
   library, it adds to the time of day the seconds that the file $TURNED_CLOCK
   says. Clocks that no one can set stay as they are. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long seconds(void)
{
    char text[32];
    const char *file = getenv("TURNED_CLOCK");
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length < 0)
        return 0;
    text[length] = 0;
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    if (syscall(SYS_clock_gettime, id, now) != 0)
        return -1;
    if (id == CLOCK_REALTIME)
        now->tv_sec += seconds();
    return 0;
}
