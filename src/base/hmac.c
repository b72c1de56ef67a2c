/* base/hmac.c - see base/hmac.h for the contract. */
#include "base/hmac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/check.h"
#include "base/mem.h"

struct hmac {
    EVP_MAC_CTX *ctx;
};

struct hmac *hmac_create(const void *key, size_t len) {
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    struct hmac *h = mem_zalloc(sizeof(*h));
    if (!h) return NULL;
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    if (mac) h->ctx = EVP_MAC_CTX_new(mac);
    EVP_MAC_free(mac); /* the context holds its own reference */
    if (h->ctx && EVP_MAC_init(h->ctx, key, len, params) == 1) return h;
    hmac_destroy(h);
    return NULL;
}

/* The same key again. */
void hmac_begin(struct hmac *h) { CHECK(EVP_MAC_init(h->ctx, NULL, 0, NULL) == 1); }

void hmac_add(struct hmac *h, const void *bytes, size_t len) {
    CHECK(EVP_MAC_update(h->ctx, bytes, len) == 1);
}

void hmac_end(struct hmac *h, uint8_t out[HMAC_BYTES]) {
    size_t written = 0;
    CHECK(EVP_MAC_final(h->ctx, out, &written, HMAC_BYTES) == 1);
    CHECK(written == HMAC_BYTES);
}

void hmac_destroy(struct hmac *h) {
    if (!h) return;
    EVP_MAC_CTX_free(h->ctx);
    mem_free(h);
}
