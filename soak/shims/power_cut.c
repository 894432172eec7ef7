/* LD_PRELOAD: keeps beside the home what of its files is on the disk for certain, as soak/shims/power_cut.py needs it.

   The first time that a file below WAYSTATION_SHIM_HOME is changed, its bytes of before are copied to
   WAYSTATION_SHIM_SYNCED/<inode>: what stood there at the start is on the disk. Each sync brings the copy up to the
   file. What a process has written and not synced is therefore in the file and not in the copy. Names of files count as
   kept at once. A sync that io_faults.c forgets does not get here, and so keeps nothing.

   The lock is held over a copy, so that no write comes between. */
#include "control.h"
#include <pthread.h>

#define FILES_MAX 4096
#define COPY_BYTES 65536

struct file {
    dev_t device;
    ino_t inode;
    int64_t from, to; /* bytes that were changed since the last sync: from <= at < to; none when from is greater */
};

static struct file files[FILES_MAX];
static int files_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside; /* our own calls pass */

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int copy_of(const struct file *file, int flags)
{
    char path[4096];
    const char *folder = getenv("WAYSTATION_SHIM_SYNCED");
    if (!folder)
        return -1;
    snprintf(path, sizeof path, "%s/%llu", folder, (unsigned long long)file->inode);
    return open(path, O_WRONLY | O_CLOEXEC | flags, 0600);
}

/* Copy bytes, and cut the copy to the length of the file. What is open for reading is read through its own descriptor:
   closing another one of the same file would drop the locks that this process holds on it (POSIX). Return 0 when the
   process has no descriptor left: what was not copied is then copied with the next sync. */
static int copy(int fd, const struct file *file, int flags, int64_t from, int64_t to)
{
    static __typeof__(&pread) real_pread; /* that of the other shims may fail */
    if (!real_pread)
        real_pread = (__typeof__(&pread))dlsym(RTLD_NEXT, "pread");
    static char data[COPY_BYTES];
    char link[64];
    struct stat now;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int is_write_only = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
    int source = is_write_only ? open(link, O_RDONLY | O_CLOEXEC) : fd;
    int target = source >= 0 ? copy_of(file, flags) : -1;
    if (target < 0) {
        if (errno != EMFILE)
            abort(); /* a law that cannot be tried must not seem to hold */
        if (is_write_only && source >= 0)
            close(source);
        return 0;
    }
    if (fstat(source, &now) != 0)
        abort();
    to = to < now.st_size ? to : now.st_size;
    while (from < to) {
        size_t most = (size_t)(to - from < COPY_BYTES ? to - from : COPY_BYTES);
        ssize_t size = real_pread(source, data, most, from);
        if (size <= 0 || pwrite(target, data, (size_t)size, from) != size)
            abort();
        from += size;
    }
    if (ftruncate(target, now.st_size) != 0)
        abort();
    close(target);
    if (is_write_only)
        close(source);
    return 1;
}

static int is_ours(int fd)
{
    char link[64], path[4096];
    const char *home = getenv("WAYSTATION_SHIM_HOME");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (!home || size <= 0)
        return 0;
    path[size] = 0;
    if (size > 4 && strcmp(path + size - 4, "-shm") == 0)
        return 0; /* SQLite's shared memory is made anew at each start */
    return strncmp(path, home, strlen(home)) == 0 && path[strlen(home)] == '/';
}

/* Return the file of a descriptor; NULL when it is none of the home. A new one gets its copy. */
static struct file *file_of(int fd, int makes)
{
    struct stat found;
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode))
        return NULL;
    for (int i = 0; i < files_count; i++)
        if (files[i].inode == found.st_ino && files[i].device == found.st_dev)
            return &files[i];
    if (!makes || !is_ours(fd))
        return NULL;
    if (files_count == FILES_MAX)
        abort();
    struct file *file = &files[files_count];
    *file = (struct file){found.st_dev, found.st_ino, INT64_MAX, 0};
    if (!copy(fd, file, O_CREAT | O_TRUNC, 0, found.st_size))
        return NULL;
    files_count++;
    return file;
}

/* Note that bytes are about to change. */
static void changes(int fd, int64_t from, int64_t to)
{
    if (inside)
        return;
    inside = 1;
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd, 1);
    if (file) {
        file->from = from < file->from ? from : file->from;
        file->to = to > file->to ? to : file->to;
    }
    pthread_mutex_unlock(&lock);
    inside = 0;
}

static void synced(int fd)
{
    if (inside)
        return;
    inside = 1;
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd, 0);
    if (file && copy(fd, file, 0, file->from, file->to)) {
        file->from = INT64_MAX;
        file->to = 0;
    }
    pthread_mutex_unlock(&lock);
    inside = 0;
}

static int64_t end_of(int fd)
{
    struct stat found;
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_APPEND) && fstat(fd, &found) == 0)
        return found.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    if (!inside) {
        int64_t at = end_of(fd); /* -1 for a socket or a pipe */
        if (at >= 0)
            changes(fd, at, at + (int64_t)size);
    }
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    REAL(pwrite);
    changes(fd, at, at + (int64_t)size);
    return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    changes(fd, at, at + (int64_t)size);
    return real(fd, data, size, at);
}

int ftruncate(int fd, off_t size)
{
    REAL(ftruncate);
    changes(fd, size, INT64_MAX); /* what grows there again is new */
    return real(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    REAL(ftruncate64);
    changes(fd, size, INT64_MAX); /* what grows there again is new */
    return real(fd, size);
}

int fsync(int fd)
{
    REAL(fsync);
    int code = real(fd);
    if (code == 0)
        synced(fd);
    return code;
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    int code = real(fd);
    if (code == 0)
        synced(fd);
    return code;
}

/* A file that is emptied as it is opened had bytes that were on the disk. */
static void emptied(const char *path, int flags)
{
    if (inside || !(flags & O_TRUNC))
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        changes(fd, 0, INT64_MAX);
        close(fd);
    }
}

/* Another file may soon have the number of one that goes. */
static void goes(const char *path)
{
    struct stat found;
    if (inside || lstat(path, &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink > 1)
        return;
    inside = 1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < files_count; i++)
        if (files[i].inode == found.st_ino && files[i].device == found.st_dev)
            files[i] = files[--files_count];
    pthread_mutex_unlock(&lock);
    inside = 0;
}

int unlink(const char *path)
{
    REAL(unlink);
    goes(path);
    return real(path);
}

int rename(const char *before, const char *after)
{
    REAL(rename);
    goes(after);
    return real(before, after);
}

#define OPENED(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); \
        va_end(more); \
        REAL(name); \
        emptied(path, flags); \
        return real(path, flags, mode); \
    }

OPENED(open)
OPENED(open64)
