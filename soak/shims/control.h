/* What the shims share: the control words that soak/shims/preload.py writes, and which files are meant.

   The words are 64-bit integers in a file that the environment names; all processes map the same one, so that a word
   takes effect at the next call and costs a load when it is 0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The order is that of WORDS in soak/shims/preload.py. */
enum word {
    FSYNC_FAILS,      /* so many syncs to come fail with EIO */
    WRITE_ONE_IN,     /* one write in so many fails; 0 is none */
    WRITE_ERRNO,      /* ... with this */
    READ_ERRNO,       /* every read fails with this; 0 is none */
    FSYNC_DELAY_MS,   /* every sync takes so much longer */
    FSYNC_FORGOTTEN,  /* a sync does nothing and says that it did */
    FULL,             /* writes say ENOSPC, and the free space is 0 */
    CLOCK_STEP_US,    /* added to the time of day */
    HUNG,             /* writes and syncs do not return while this is not 0 */
    INJECTED,         /* how many calls failed or were forgotten */
    WORDS_COUNT
};

static volatile int64_t *shim_words(void)
{
    static volatile int64_t *words;
    static int64_t none[WORDS_COUNT];
    if (words)
        return words;
    const char *path = getenv("WAYSTATION_SHIM_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = MAP_FAILED;
    if (fd >= 0) {
        mapped = mmap(NULL, WORDS_COUNT * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    words = mapped == MAP_FAILED ? none : mapped;
    return words;
}

static inline int64_t shim_word(enum word which) { return shim_words()[which]; }
