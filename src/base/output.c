/* output.c - a file that is there whole or not at all. */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Whether `path` may be replaced: it is not there, or a regular file that is no model. */
static k3_status check_target(const char *path, struct k3_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT ? K3_OK : k3_fail_errno(err, errno, "%s: cannot be examined", path);
    if (!S_ISREG(st.st_mode))
        return k3_fail(err, K3_ERR_IO, "%s: is no regular file and cannot be replaced", path);

    char magic[4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, magic, sizeof magic);
    if (fd >= 0) close(fd);
    if (got == 4 && memcmp(magic, "GGUF", 4) == 0)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: is a GGUF file and is not overwritten", path);
    return K3_OK;
}

/* mkstemp makes files private; a result has the permissions any new file has. */
static void use_common_mode(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
}

k3_status k3_output_open(const char *path, struct k3_output *output, struct k3_error *err)
{
    *output = (struct k3_output){.fd = -1};
    if (!*path) return k3_fail(err, K3_ERR_ARGUMENT, "the name of the output file is empty");
    k3_status status = check_target(path, err);
    if (status != K3_OK) return status;

    /* A symbolic link stays: what it points to is replaced. */
    output->path = realpath(path, NULL);
    if (!output->path) output->path = strdup(path);
    if (!output->path || asprintf(&output->temporary, "%s.XXXXXX", output->path) < 0) {
        output->temporary = NULL;
        k3_output_discard(output);
        return k3_fail_memory(err, "a file name", strlen(path));
    }
    output->fd = mkstemp(output->temporary);
    if (output->fd < 0) {
        int errnum = errno;
        k3_output_discard(output);
        return k3_fail_errno(err, errnum, "%s: cannot be written", path);
    }
    use_common_mode(output->fd);
    return K3_OK;
}

k3_status k3_output_expect(const struct k3_output *output, uint64_t bytes, struct k3_error *err)
{
    struct statvfs fs;
    if (fstatvfs(output->fd, &fs) != 0) return K3_OK; /* then writing will tell */
    uint64_t unit = fs.f_frsize, free_bytes;
    if (__builtin_mul_overflow((uint64_t)fs.f_bavail, unit, &free_bytes) || bytes <= free_bytes) return K3_OK;
    return k3_fail(err, K3_ERR_IO, "%s: needs %.1f MB, but its file system has only %.1f MB free",
                   output->path, (double)bytes / 1e6, (double)free_bytes / 1e6);
}

k3_status k3_output_write(struct k3_output *output, const void *bytes, size_t n, struct k3_error *err)
{
    for (const char *from = bytes; n;) {
        ssize_t put = write(output->fd, from, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return k3_fail_errno(err, errno, "%s: cannot be written", output->path);
        from += put;
        n -= (size_t)put;
    }
    return K3_OK;
}

k3_status k3_output_commit(struct k3_output *output, struct k3_error *err)
{
    bool ok = fsync(output->fd) == 0 && rename(output->temporary, output->path) == 0;
    k3_status status = ok ? K3_OK : k3_fail_errno(err, errno, "%s: cannot be written", output->path);
    if (ok) { /* nothing is left to remove */
        free(output->temporary);
        output->temporary = NULL;
    }
    k3_output_discard(output);
    return status;
}

void k3_output_discard(struct k3_output *output)
{
    if (output->fd >= 0) {
        close(output->fd);
        if (output->temporary) unlink(output->temporary);
    }
    free(output->temporary);
    free(output->path);
    *output = (struct k3_output){.fd = -1};
}
