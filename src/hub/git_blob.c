/* hub/git_blob.c - see hub/git_blob.h for the contract. */
#include "hub/git_blob.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

bool git_hex_ok(struct str s) {
    if (s.len != GIT_HEX_BYTES - 1) return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == 0 || !strchr("0123456789abcdefABCDEF", s.ptr[i])) return false;
    return true;
}

static bool hash(const struct file_map *map, unsigned char digest[EVP_MAX_MD_SIZE]) {
    char head[32];
    int head_bytes = snprintf(head, sizeof(head), "blob %zu", map->len) + 1; /* with its NUL */
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) == 1 &&
              EVP_DigestUpdate(ctx, head, (size_t)head_bytes) == 1 &&
              EVP_DigestUpdate(ctx, map->ptr, map->len) == 1 &&
              EVP_DigestFinal_ex(ctx, digest, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return ok;
}

enum status git_blob_file(const char *path, char out[GIT_HEX_BYTES], struct err *err) {
    struct file_map map;
    unsigned char digest[EVP_MAX_MD_SIZE];
    TRY(file_map_open(path, &map, err));
    bool ok = hash(&map, digest);
    enum status st = ok ? file_map_check(&map, err)
                        : err_set(err, ST_NOMEM, "%s: out of memory while hashing", path);
    file_map_close(&map);
    for (unsigned i = 0; ok && i < (GIT_HEX_BYTES - 1) / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return st;
}
