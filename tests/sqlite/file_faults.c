/* Stands between a process and libc (LD_PRELOAD): counts what is done to the files of one folder, and at the n-th
 * operation ends the process, tears a write, or fails with an error; or writes every operation down. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum mode { COUNT = 0, EXIT_BEFORE = 1, TEAR = 2, FAIL = 3, FAIL_WRITE = 4 }; /* TEAR, FAIL_WRITE: only writes count */

static char folder[4096];
static long seen, wanted;
static int mode, failing_errno;
static FILE *record;

#define REAL(name) \
    static __typeof__(name) *real_##name; \
    if (!real_##name) real_##name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

void faults_arm(const char *watched, long nth, int how, int error)
{
    snprintf(folder, sizeof folder, "%s", watched);
    seen = 0;
    wanted = nth;
    mode = how;
    failing_errno = error;
}

void faults_record(const char *file) { record = fopen(file, "wb"); }

long faults_seen(void) { return seen; }

static void put(char kind, const char *path, uint64_t offset, const void *data, uint64_t size)
{
    uint32_t length = strlen(path);
    fwrite(&kind, 1, 1, record);
    fwrite(&length, sizeof length, 1, record);
    fwrite(path, 1, length, record);
    fwrite(&offset, sizeof offset, 1, record);
    fwrite(&size, sizeof size, 1, record);
    if (data) fwrite(data, 1, size, record);
    fflush(record);
}

void faults_note(uint64_t number) { if (record) put('N', "", number, NULL, 0); }

static int watched_path(const char *path) { return folder[0] && strncmp(path, folder, strlen(folder)) == 0; }

/* The path of a descriptor, NULL when it is none of the folder's. */
static const char *path_of(int fd)
{
    static __thread char path[4096];
    char link[64];
    if (!folder[0]) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return NULL;
    path[length] = 0;
    return watched_path(path) ? path : NULL;
}

/* Whether this operation is to fail. Does not return when the process is to end before it. */
static int strikes(int is_write)
{
    if (!is_write && mode >= TEAR && mode != FAIL) return 0;
    if (++seen != wanted || mode == COUNT || mode == TEAR) return 0;
    if (mode == EXIT_BEFORE) _exit(66);
    errno = failing_errno;
    return 1;
}

static int tears(void) { return mode == TEAR && seen == wanted; }

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    const char *path = path_of(fd);
    if (path) {
        if (strikes(1)) return -1;
        if (tears()) { real_write(fd, data, size / 2); _exit(66); }
        if (record) put('W', path, lseek(fd, 0, SEEK_CUR), data, size);
    }
    return real_write(fd, data, size);
}

static ssize_t positioned(ssize_t (*real)(int, const void *, size_t, off64_t), int fd, const void *data, size_t size,
                          off64_t offset)
{
    const char *path = path_of(fd);
    if (path) {
        if (strikes(1)) return -1;
        if (tears()) { real(fd, data, size / 2, offset); _exit(66); }
        if (record) put('W', path, offset, data, size);
    }
    return real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    REAL(pwrite);
    return positioned(real_pwrite, fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    REAL(pwrite64);
    return positioned(real_pwrite64, fd, data, size, offset);
}

static int on_descriptor(char kind, int fd, uint64_t offset)
{
    const char *path = path_of(fd);
    if (!path) return 0;
    if (strikes(0)) return -1;
    if (record) put(kind, path, offset, NULL, 0);
    return 0;
}

/* Nothing is synchronized in truth: when a process ends, what it wrote stays. It is the order that counts, and a
 * power failure is played through from what was written down. */
int fsync(int fd)
{
    REAL(fsync);
    return path_of(fd) ? on_descriptor('S', fd, 0) : real_fsync(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    return path_of(fd) ? on_descriptor('S', fd, 0) : real_fdatasync(fd);
}

int ftruncate(int fd, off_t size)
{
    REAL(ftruncate);
    return on_descriptor('T', fd, size) ? -1 : real_ftruncate(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    REAL(ftruncate64);
    return on_descriptor('T', fd, size) ? -1 : real_ftruncate64(fd, size);
}

int unlink(const char *path)
{
    REAL(unlink);
    if (watched_path(path)) {
        if (strikes(0)) return -1;
        if (record) put('U', path, 0, NULL, 0);
    }
    return real_unlink(path);
}
