/* base/tree.c - see base/tree.h for the contract.
 *
 * Works through folder descriptors (openat, O_NOFOLLOW), so a folder swapped for a link while
 * we walk cannot lead outside.
 */
#include "base/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 16 };

/* What to do at each file and each emptied folder; 0, or -1 with errno. */
struct walk {
    bool remove;
    uint64_t bytes;
};

static int walk_folder(struct walk *w, int parent, const char *name, uint32_t depth);

static int walk_entry(struct walk *w, int folder, const char *name, uint32_t depth) {
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : -1;
    if (S_ISDIR(info.st_mode)) return walk_folder(w, folder, name, depth + 1);
    if (w->remove && unlinkat(folder, name, 0) != 0 && errno != ENOENT) return -1;
    if (S_ISREG(info.st_mode)) w->bytes += (uint64_t)info.st_size;
    return 0;
}

/* Recursion is bounded by DEPTH_MAX. */
static int walk_folder(struct walk *w, int parent, const char *name, uint32_t depth) {
    if (depth > DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : -1;
    DIR *folder = fdopendir(fd);
    if (!folder) {
        close(fd);
        return -1;
    }
    int rc = 0;
    struct dirent *entry;
    while (rc == 0 && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = walk_entry(w, fd, entry->d_name, depth);
    int saved = errno;
    closedir(folder);
    errno = saved;
    if (rc == 0 && w->remove && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        rc = -1;
    return rc;
}

uint64_t tree_bytes(const char *path) {
    struct walk w = {.remove = false};
    walk_entry(&w, AT_FDCWD, path, 0);
    return w.bytes;
}

enum status tree_remove(const char *path, uint64_t *freed_bytes, struct err *err) {
    struct walk w = {.remove = true};
    int rc = walk_entry(&w, AT_FDCWD, path, 0);
    if (freed_bytes) *freed_bytes += w.bytes;
    if (rc != 0) return err_set(err, ST_IO, "%s: cannot remove: %s", path, strerror(errno));
    return ST_OK;
}
