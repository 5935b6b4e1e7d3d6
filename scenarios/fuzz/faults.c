/* Fails the n-th call that writes below one folder: preloaded, and armed by the process itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { FAIL = 0, SHORT = 1, FULL = 2 };
static long left = -1, seen = 0;
static int way = FAIL;
static char folder[4096];

void faults_arm(const char *below, long n, int how) {
    strncpy(folder, below, sizeof folder - 1);
    seen = 0;
    way = how;
    left = n;
}

long faults_seen(void) { return seen; }

static int below_path(const char *path) {
    return left >= 0 && folder[0] && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int below_fd(int fd) {
    char link[64], path[4096];
    if (left < 0 || !folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below_path(path);
}

/* Whether this call is the one that fails; the first is call 1, and 0 never fails. */
static int fails(void) {
    seen++;
    return left > 0 && seen == left;
}

#define NEXT(type, name) static type (*next)(); if (!next) next = (type (*)())dlsym(RTLD_NEXT, name)
#define CODE (way == FULL ? ENOSPC : EIO)

ssize_t write(int fd, const void *data, size_t size) {
    NEXT(ssize_t, "write");
    if (below_fd(fd) && fails()) {
        if (way == SHORT && size > 1) return next(fd, data, size / 2);
        errno = CODE;
        return -1;
    }
    return next(fd, data, size);
}

static ssize_t at(const char *name, int fd, const void *data, size_t size, off_t offset) {
    ssize_t (*next)(int, const void *, size_t, off_t) =
        (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
    if (below_fd(fd) && fails()) {
        if (way == SHORT && size > 1) return next(fd, data, size / 2, offset);
        errno = CODE;
        return -1;
    }
    return next(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return at("pwrite", fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return at("pwrite64", fd, data, size, offset);
}
int fsync(int fd) {
    NEXT(int, "fsync");
    if (below_fd(fd) && fails()) { errno = CODE; return -1; }
    return next(fd);
}
int fdatasync(int fd) {
    NEXT(int, "fdatasync");
    if (below_fd(fd) && fails()) { errno = CODE; return -1; }
    return next(fd);
}
int rename(const char *from, const char *to) {
    NEXT(int, "rename");
    if (below_path(to) && fails()) { errno = CODE; return -1; }
    return next(from, to);
}

static int opened(const char *name, const char *path, int flags, mode_t mode) {
    int (*next)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, name);
    if ((flags & (O_WRONLY | O_RDWR)) && below_path(path) && fails()) { errno = CODE; return -1; }
    return next(path, flags, mode);
}
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opened("open", path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return opened("open64", path, flags, mode);
}
