/* base/sha256.c - see base/sha256.h for the contract. */
#include "base/sha256.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

struct sha256 {
    EVP_MD_CTX *ctx;
};

struct sha256 *sha256_create(void) {
    struct sha256 *h = mem_zalloc(sizeof(*h));
    if (!h) return NULL;
    h->ctx = EVP_MD_CTX_new();
    if (h->ctx && EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) == 1) return h;
    sha256_destroy(h);
    return NULL;
}

void sha256_add(struct sha256 *h, const void *bytes, size_t len) {
    CHECK(EVP_DigestUpdate(h->ctx, bytes, len) == 1);
}

void sha256_hex(struct sha256 *h, char out[SHA256_HEX_BYTES]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    CHECK(EVP_DigestFinal_ex(h->ctx, digest, &len) == 1);
    CHECK(len * 2 + 1 == SHA256_HEX_BYTES);
    for (unsigned i = 0; i < len; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

void sha256_destroy(struct sha256 *h) {
    if (!h) return;
    EVP_MD_CTX_free(h->ctx);
    mem_free(h);
}

enum status sha256_file(const char *path, char out[SHA256_HEX_BYTES], struct err *err) {
    struct file_map map;
    TRY(file_map_open(path, &map, err));
    struct sha256 *h = sha256_create();
    if (h) {
        sha256_add(h, map.ptr, map.len);
        sha256_hex(h, out);
        sha256_destroy(h);
    }
    enum status st = h ? file_map_check(&map, err)
                       : err_set(err, ST_NOMEM, "%s: out of memory while hashing", path);
    file_map_close(&map);
    return st == ST_IO ? err_prefix(err, st, path) : st;
}
