/* LD_PRELOAD: the time of day is off by CLOCK_STEP_US; the monotonic clock is not. */
#include "control.h"
#include <sys/time.h>
#include <time.h>

static void shift(struct timespec *at)
{
    int64_t step_us = shim_word(CLOCK_STEP_US);
    int64_t ns = (int64_t)at->tv_nsec + step_us % 1000000 * 1000;
    at->tv_sec += step_us / 1000000 + (ns >= 1000000000) - (ns < 0);
    at->tv_nsec = ns + (ns < 0 ? 1000000000 : 0) - (ns >= 1000000000 ? 1000000000 : 0);
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, at);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        shift(at);
    return code;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
