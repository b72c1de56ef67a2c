/* Goal:   SipHash-2-4-128 and HMAC-SHA-256 are those of their definitions, for every length.
 * Method: vectors of the SipHash paper's reference code and of RFC 4231; every prefix of a text
 *         against OpenSSL's SipHash; a message in pieces against the message in one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/hmac.h"
#include "base/siphash.h"

enum { LEN_MAX = 300 };

static const struct siphash_key KEY = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

static void assert_hash(struct siphash h, const uint8_t expected[16]) {
    uint8_t bytes[16];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(h.low >> 8 * i);
        bytes[8 + i] = (uint8_t)(h.high >> 8 * i);
    }
    assert_memory_equal(bytes, expected, 16);
}

static void test_siphash_gives_the_papers_values(void **state) {
    (void)state;
    const uint8_t zero = 0;
    assert_hash(siphash_of(KEY, "", 0),
                (const uint8_t[16]){0xA3, 0x81, 0x7F, 0x04, 0xBA, 0x25, 0xA8, 0xE6, 0x6D, 0xF6,
                                    0x72, 0x14, 0xC7, 0x55, 0x02, 0x93});
    assert_hash(siphash_of(KEY, &zero, 1),
                (const uint8_t[16]){0xDA, 0x87, 0xC1, 0xD8, 0x6B, 0x99, 0xAF, 0x44, 0x34, 0x76,
                                    0x59, 0x11, 0x9B, 0x22, 0xFC, 0x45});
}

static void test_siphash_agrees_with_openssl_for_every_length(void **state) {
    (void)state;
    uint8_t text[LEN_MAX], key[16], expected[16];
    size_t size = 16, written;
    for (int i = 0; i < 16; i++) key[i] = (uint8_t)i;
    for (int i = 0; i < LEN_MAX; i++) text[i] = (uint8_t)(i * 37);
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                                 OSSL_PARAM_construct_end()};
    for (size_t len = 0; len <= LEN_MAX; len++) {
        assert_int_equal(EVP_MAC_init(ctx, key, sizeof(key), params), 1);
        assert_int_equal(EVP_MAC_update(ctx, text, len), 1);
        assert_int_equal(EVP_MAC_final(ctx, expected, &written, 16), 1);
        assert_hash(siphash_of(KEY, text, len), expected);
    }
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
}

/* RFC 4231, test case 2. */
static void test_hmac_gives_the_standards_value_again_and_again(void **state) {
    (void)state;
    const uint8_t expected[HMAC_BYTES] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
                                          0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
                                          0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83,
                                          0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    const char text[] = "what do ya want for nothing?";
    uint8_t out[HMAC_BYTES];
    struct hmac *h = hmac_create("Jefe", 4);
    assert_non_null(h);
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        hmac_begin(h);
        hmac_add(h, text, cut);
        hmac_add(h, text + cut, sizeof(text) - 1 - cut);
        hmac_end(h, out);
        assert_memory_equal(out, expected, HMAC_BYTES);
    }
    hmac_destroy(h);
    hmac_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash_gives_the_papers_values),
        cmocka_unit_test(test_siphash_agrees_with_openssl_for_every_length),
        cmocka_unit_test(test_hmac_gives_the_standards_value_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
