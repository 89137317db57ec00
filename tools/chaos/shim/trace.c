/*
 * Writes down what a process does to the files below one directory.
 *
 * Preloaded (LD_PRELOAD) it wraps the calls of libc that change files. Of each call that names a file below $CHAOS_ROOT
 * it appends a record to the file $CHAOS_TRACE: which operation, on which file, with which bytes. The operation and its
 * record are one step under a lock, so that the order of records is the order of operations. A sync is two records,
 * begun and done, since others go on meanwhile: it covers what was written before it began.
 *
 * A record, all numbers as this machine has them:
 *
 *   u8 operation, u32 file, u64 offset, u32 length, length bytes
 *
 *   P  a process begins: file numbers are given anew
 *   C  created or opened: the path below the root; file = a number for the inode, offset = 1 if it was truncated
 *   M  a directory was made: its path                 S  a directory was opened: its path; file = its number
 *   W  the bytes at this offset                       T  cut or extended to this offset
 *   R  renamed: old path, 0, new path                 U  removed: its path
 *   B  a sync of the file began; offset = 1: without metadata (fdatasync)
 *   E  it is done
 *   F  sync_file_range, done: promises nothing, and counts for nothing
 *
 * What the store doesn't use isn't wrapped: memory maps, links, O_DIRECT, io_uring, copy_file_range.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static char root[PATH_MAX];
static size_t root_length;
/* By descriptor: the number of the file below the root, 0 if it is elsewhere. */
static uint32_t numbers[FILES];
/* Inode numbers seen, in the order of the numbers given to them. An inode that was removed may be used again. */
static ino_t inodes[FILES * 16];
static uint32_t count;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static void fail(void) { abort(); /* A trace with a hole proves nothing. */ }

static ssize_t real_write(int fd, const void *bytes, size_t length) {
    REAL(write);
    return real(fd, bytes, length);
}

static void put(const void *bytes, size_t length) {
    const char *at = bytes;
    while (length > 0) {
        ssize_t n = real_write(trace, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail();
        at += n;
        length -= (size_t)n;
    }
}

static void record(char operation, uint32_t file, uint64_t offset, const void *bytes, size_t length) {
    int error = errno;
    uint32_t n = (uint32_t)length;
    char head[17];
    head[0] = operation;
    memcpy(head + 1, &file, 4);
    memcpy(head + 5, &offset, 8);
    memcpy(head + 13, &n, 4);
    put(head, sizeof head);
    put(bytes, length);
    errno = error;
}

__attribute__((constructor)) static void start(void) {
    const char *directory = getenv("CHAOS_ROOT"), *file = getenv("CHAOS_TRACE");
    if (!directory || !file) return;
    root_length = strlen(directory);
    if (root_length >= sizeof root) fail();
    memcpy(root, directory, root_length + 1);
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    trace = real(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (trace < 0) fail();
    record('P', 0, 0, "", 0);
}

/* The part of an absolute path below the root; NULL if it is elsewhere. */
static const char *below(const char *path) {
    if (trace < 0 || strncmp(path, root, root_length) != 0) return NULL;
    if (path[root_length] == '/') return path + root_length + 1;
    return path[root_length] == 0 ? "" : NULL;
}

static uint32_t number_of(int fd) {
    return trace >= 0 && fd >= 0 && fd < FILES ? numbers[fd] : 0;
}

/* Gives the inode behind a descriptor its number. Of a new file it is a new one. */
static uint32_t give_number(int fd, int is_new) {
    struct stat found;
    if (fd >= FILES || fstat(fd, &found) != 0) fail();
    uint32_t number = 0;
    for (uint32_t n = count; n > 0 && !number && !is_new; n--)
        if (inodes[n - 1] == found.st_ino) number = n;
    if (!number) {
        if (count == FILES * 16) fail();
        inodes[count] = found.st_ino;
        number = ++count;
    }
    numbers[fd] = number;
    return number;
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    const char *name = below(path);
    if (!name) return real(path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat found;
    int is_new = stat(path, &found) != 0;
    int fd = real(path, flags, mode);
    if (fd >= 0) {
        if (fstat(fd, &found) != 0) fail();
        int directory = S_ISDIR(found.st_mode);
        uint32_t number = give_number(fd, is_new);
        record(directory ? 'S' : 'C', number, (flags & O_TRUNC) != 0, name, strlen(name));
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        static int (*real)(const char *, int, ...); \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return opened(real, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    REAL(close);
    if (fd >= 0 && fd < FILES) numbers[fd] = 0;
    return real(fd);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    uint32_t file = number_of(fd);
    if (!file) return real_write(fd, bytes, length);
    pthread_mutex_lock(&lock);
    /* With O_APPEND the place is only known afterwards. */
    ssize_t n = real_write(fd, bytes, length);
    if (n > 0) record('W', file, (uint64_t)(lseek(fd, 0, SEEK_CUR) - n), bytes, (size_t)n);
    pthread_mutex_unlock(&lock);
    return n;
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    REAL(writev);
    if (number_of(fd)) fail(); /* Nobody here does that; to be wrapped when somebody does. */
    return real(fd, parts, n);
}

#define PWRITE(name, type) \
    ssize_t name(int fd, const void *bytes, size_t length, type offset) { \
        REAL(name); \
        uint32_t file = number_of(fd); \
        if (!file) return real(fd, bytes, length, offset); \
        pthread_mutex_lock(&lock); \
        ssize_t n = real(fd, bytes, length, offset); \
        if (n > 0) record('W', file, (uint64_t)offset, bytes, (size_t)n); \
        pthread_mutex_unlock(&lock); \
        return n; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, type) \
    int name(int fd, type length) { \
        REAL(name); \
        uint32_t file = number_of(fd); \
        if (!file) return real(fd, length); \
        pthread_mutex_lock(&lock); \
        int done = real(fd, length); \
        if (done == 0) record('T', file, (uint64_t)length, "", 0); \
        pthread_mutex_unlock(&lock); \
        return done; \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

/* Changes of names, by path. */
static int named(int done, char operation, const char *name) {
    if (done == 0) record(operation, 0, 0, name, strlen(name));
    return done;
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    const char *name = below(path);
    if (!name) return real(path, mode);
    pthread_mutex_lock(&lock);
    int done = named(real(path, mode), 'M', name);
    pthread_mutex_unlock(&lock);
    return done;
}

#define REMOVE(function) \
    int function(const char *path) { \
        REAL(function); \
        const char *name = below(path); \
        if (!name) return real(path); \
        pthread_mutex_lock(&lock); \
        int done = named(real(path), 'U', name); \
        pthread_mutex_unlock(&lock); \
        return done; \
    }
REMOVE(unlink)
REMOVE(rmdir)

int unlinkat(int directory, const char *path, int flags) {
    REAL(unlinkat);
    if (number_of(directory)) fail(); /* As with writev. */
    return real(directory, path, flags);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    const char *old = below(from), *name = below(to);
    if (!old || !name) return real(from, to);
    pthread_mutex_lock(&lock);
    int done = real(from, to);
    if (done == 0) {
        char both[2 * PATH_MAX];
        size_t first = strlen(old) + 1, second = strlen(name);
        if (first + second > sizeof both) fail();
        memcpy(both, old, first);
        memcpy(both + first, name, second);
        record('R', 0, 0, both, first + second);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static int synced(int (*real)(int), int fd, int data_only) {
    uint32_t file = number_of(fd);
    if (!file) return real(fd);
    pthread_mutex_lock(&lock);
    record('B', file, (uint64_t)data_only, "", 0);
    pthread_mutex_unlock(&lock);
    int done = real(fd);
    if (done == 0) {
        pthread_mutex_lock(&lock);
        record('E', file, (uint64_t)data_only, "", 0);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

int fsync(int fd) {
    REAL(fsync);
    return synced(real, fd, 0);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return synced(real, fd, 1);
}

int sync_file_range(int fd, off64_t offset, off64_t length, unsigned int flags) {
    REAL(sync_file_range);
    uint32_t file = number_of(fd);
    int done = real(fd, offset, length, flags);
    if (file && done == 0) {
        pthread_mutex_lock(&lock);
        record('F', file, (uint64_t)offset, "", 0);
        pthread_mutex_unlock(&lock);
    }
    return done;
}
