/* The time of day of a process. The file CLOCK_FILE holds two numbers of microseconds: the time by
 * which it is ahead, and the time at which it stands, or 0. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile const struct {
    long long ahead_us;
    long long stopped_us;
} *setting;

__attribute__((constructor)) static void map_setting(void)
{
    int file = open(CLOCK_FILE, O_RDONLY);
    void *page = mmap(NULL, sizeof(*setting), PROT_READ, MAP_SHARED, file, 0);

    if (page == MAP_FAILED)
        abort();
    setting = page;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int (*real)(struct timeval *, void *) =
        (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int status = real(now, zone);
    long long us = setting->stopped_us;

    if (us == 0)
        us = now->tv_sec * 1000000LL + now->tv_usec + setting->ahead_us;
    now->tv_sec = us / 1000000;
    now->tv_usec = us % 1000000;
    return status;
}
