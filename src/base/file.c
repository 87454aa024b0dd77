/* file.c - files that are only read. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One read call asks for at most this much: the kernel cuts reads at 2 GiB anyway. */
#define READ_MAX ((size_t)1 << 30)

const char *k3_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

k3_status k3_file_open(const char *path, struct k3_file *file, struct k3_error *err)
{
    /* O_NONBLOCK: opening a pipe without a writer must not hang before it is refused below. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return k3_fail_errno(err, errno, "%s: cannot be opened", path);

    struct stat st;
    if (fstat(fd, &st) != 0) {
        int errnum = errno;
        close(fd);
        return k3_fail_errno(err, errnum, "%s: cannot be examined", path);
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return k3_fail(err, K3_ERR_IO, "%s: is %s, not a file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    }
    char *copy = strdup(path);
    if (!copy) {
        close(fd);
        return k3_fail_memory(err, "a file name", strlen(path));
    }
    file->fd = fd;
    file->size = (uint64_t)st.st_size;
    file->path = copy;
    return K3_OK;
}

k3_status k3_file_read(const struct k3_file *file, uint64_t offset, void *buffer, size_t n,
                       struct k3_error *err)
{
    unsigned char *to = buffer;
    while (n) {
        ssize_t got = pread(file->fd, to, n < READ_MAX ? n : READ_MAX, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return k3_fail_errno(err, errno, "%s: reading %zu bytes at %llu failed", k3_file_name(file->path),
                                 n, (unsigned long long)offset);
        if (got == 0)
            return k3_fail(
                err, K3_ERR_IO, "%s: ends at byte %llu although it was %llu bytes long when it was opened",
                k3_file_name(file->path), (unsigned long long)offset, (unsigned long long)file->size);
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return K3_OK;
}

void k3_file_close(struct k3_file *file)
{
    if (!file->path) return;
    close(file->fd);
    free(file->path);
    file->fd = -1;
    file->path = NULL;
}
