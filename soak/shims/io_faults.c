/* LD_PRELOAD: reads, writes and syncs of files below WAYSTATION_SHIM_HOME fail, lie or take long, as the words say. */
#include "control.h"
#include <sys/statvfs.h>
#include <time.h>

/* Whether a descriptor is a file of the home. Looked up each time, and only while something is wrong: a number is
   soon another file. */
static int is_ours(int fd)
{
    char link[64], path[4096];
    const char *home = getenv("WAYSTATION_SHIM_HOME");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (!home || size <= 0)
        return 0;
    path[size] = 0;
    return strncmp(path, home, strlen(home)) == 0 && path[strlen(home)] == '/';
}

static int fails(int code)
{
    __sync_fetch_and_add(&shim_words()[INJECTED], 1);
    errno = code;
    return -1;
}

static void wait_while_hung(int fd)
{
    struct timespec moment = {0, 20000000};
    if (!shim_word(HUNG) || !is_ours(fd))
        return;
    __sync_fetch_and_add(&shim_words()[INJECTED], 1);
    while (shim_word(HUNG))
        nanosleep(&moment, NULL);
}

static int write_fails(int fd)
{
    static int64_t count;
    wait_while_hung(fd);
    if (shim_word(FULL) && is_ours(fd))
        return fails(ENOSPC);
    int64_t one_in = shim_word(WRITE_ONE_IN);
    if (one_in && is_ours(fd) && __sync_add_and_fetch(&count, 1) % one_in == 0)
        return fails((int)shim_word(WRITE_ERRNO));
    return 0;
}

static int read_fails(int fd)
{
    int64_t code = shim_word(READ_ERRNO);
    return code && is_ours(fd) ? fails((int)code) : 0;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    return write_fails(fd) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    REAL(pwrite);
    return write_fails(fd) ? -1 : real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    return write_fails(fd) ? -1 : real(fd, data, size, at);
}

ssize_t read(int fd, void *data, size_t size)
{
    REAL(read);
    return read_fails(fd) ? -1 : real(fd, data, size);
}

ssize_t pread(int fd, void *data, size_t size, off_t at)
{
    REAL(pread);
    return read_fails(fd) ? -1 : real(fd, data, size, at);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at)
{
    REAL(pread64);
    return read_fails(fd) ? -1 : real(fd, data, size, at);
}

/* Return -1 when a sync shall fail, 1 when it shall be forgotten, 0 when it shall be done. */
static int sync_goes_wrong(int fd)
{
    wait_while_hung(fd);
    int64_t delay_ms = shim_word(FSYNC_DELAY_MS);
    if (!delay_ms && !shim_word(FSYNC_FAILS) && !shim_word(FSYNC_FORGOTTEN))
        return 0;
    if (!is_ours(fd))
        return 0;
    struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    if (delay_ms)
        nanosleep(&delay, NULL);
    if (shim_word(FSYNC_FORGOTTEN)) {
        __sync_fetch_and_add(&shim_words()[INJECTED], 1);
        return 1;
    }
    if (shim_word(FSYNC_FAILS) > 0) {
        if (__sync_sub_and_fetch(&shim_words()[FSYNC_FAILS], 1) >= 0)
            return fails(EIO);
        __sync_fetch_and_add(&shim_words()[FSYNC_FAILS], 1);
    }
    return 0;
}

int fsync(int fd)
{
    REAL(fsync);
    int wrong = sync_goes_wrong(fd);
    return wrong < 0 ? -1 : wrong > 0 ? 0 : real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    int wrong = sync_goes_wrong(fd);
    return wrong < 0 ? -1 : wrong > 0 ? 0 : real(fd);
}

/* While the disk is full no space is free on it, whichever way that is asked. */
int statvfs(const char *restrict path, struct statvfs *restrict found)
{
    REAL(statvfs);
    int code = real(path, found);
    if (code == 0 && shim_word(FULL))
        found->f_bavail = found->f_bfree = 0;
    return code;
}

int fstatvfs(int fd, struct statvfs *found)
{
    REAL(fstatvfs);
    int code = real(fd, found);
    if (code == 0 && shim_word(FULL))
        found->f_bavail = found->f_bfree = 0;
    return code;
}

/* Python is built for large files, and calls these. */
int statvfs64(const char *restrict path, struct statvfs64 *restrict found)
{
    REAL(statvfs64);
    int code = real(path, found);
    if (code == 0 && shim_word(FULL))
        found->f_bavail = found->f_bfree = 0;
    return code;
}

int fstatvfs64(int fd, struct statvfs64 *found)
{
    REAL(fstatvfs64);
    int code = real(fd, found);
    if (code == 0 && shim_word(FULL))
        found->f_bavail = found->f_bfree = 0;
    return code;
}
