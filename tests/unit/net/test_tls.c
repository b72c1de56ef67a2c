/* Goal:   TLS listeners serve the same requests as plain ones; certificates can be reloaded while
 *         connections are open; plaintext and unfinished handshakes are disconnected.
 * Method: the test creates certificates with OpenSSL; an OpenSSL client on a real socket alternates
 *         with the server's loop in one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/http_listen.h"
#include "net/tls.h"
#include "unit/net/client.h"

#define ASK "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
#define ANSWER "GET /echo ?  @ a v11 1: "

/* ---- certificates ---- */

struct files {
    char folder[32], cert[64], key[64];
};

/* `password` NULL: the key needs none. */
static void write_key(const struct files *f, EVP_PKEY *key, char *password) {
    FILE *out = fopen(f->key, "w");
    assert_non_null(out);
    const EVP_CIPHER *cipher = password ? EVP_aes_128_cbc() : NULL;
    assert_int_equal(PEM_write_PrivateKey(out, key, cipher, NULL, 0, NULL, password), 1);
    fclose(out);
}

static void write_pem(const struct files *f, EVP_PKEY *key, X509 *cert) {
    write_key(f, key, NULL);
    FILE *out = fopen(f->cert, "w");
    assert_non_null(out);
    assert_int_equal(PEM_write_X509(out, cert), 1);
    fclose(out);
}

/* A self-signed certificate whose common name is `name`, in the files. */
static void issue(const struct files *f, const char *name) {
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    X509 *cert = X509_new();
    assert_non_null(key);
    assert_non_null(cert);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, subject);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    write_pem(f, key, cert);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void files_init(struct files *f, const char *name) {
    snprintf(f->folder, sizeof(f->folder), "/tmp/jitney-tls-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->cert, sizeof(f->cert), "%s/cert.pem", f->folder);
    snprintf(f->key, sizeof(f->key), "%s/key.pem", f->folder);
    if (name) issue(f, name);
}

static void files_deinit(const struct files *f) {
    unlink(f->cert);
    unlink(f->key);
    assert_int_equal(rmdir(f->folder), 0);
}

/* ---- a server ---- */

struct rig {
    struct fake f;
    struct files files;
    struct tls_context *tls;
    uint16_t port;
    SSL_CTX *ctx; /* the clients' */
};

static void rig_init(struct rig *r, const struct http_limits *limits) {
    struct err err = {0};
    files_init(&r->files, "first");
    if (tls_context_create(r->files.cert, r->files.key, &r->tls, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_int_equal(fake_init(&r->f, limits), ST_OK);
    r->port = 0;
    assert_int_equal(http_listen_tcp(r->f.server, "127.0.0.1", &r->port, r->tls, &err), ST_OK);
    r->ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(r->ctx);
}

static void rig_deinit(struct rig *r) {
    fake_deinit(&r->f);
    tls_context_destroy(r->tls);
    SSL_CTX_free(r->ctx);
    files_deinit(&r->files);
}

/* ---- a client ---- */

struct tls_client {
    struct client raw; /* `in` holds the plaintext */
    SSL *ssl;
    bool is_ended, is_polite;
};

static void note_end(struct tls_client *c, int result) {
    const int failure = SSL_get_error(c->ssl, result);
    if (failure == SSL_ERROR_WANT_READ || failure == SSL_ERROR_WANT_WRITE) return;
    c->is_ended = true;
    c->is_polite = failure == SSL_ERROR_ZERO_RETURN;
    ERR_clear_error();
}

/* `alpn` as in the wire format, or NULL. False: the handshake fails. */
static bool tls_connect(struct rig *r, struct tls_client *c, const char *alpn) {
    *c = (struct tls_client){0};
    client_connect(&c->raw, r->port);
    c->ssl = SSL_new(r->ctx);
    assert_non_null(c->ssl);
    SSL_set_fd(c->ssl, c->raw.fd);
    if (alpn) SSL_set_alpn_protos(c->ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    const int64_t end = client_now_ms() + CLIENT_WAIT_MS;
    while (client_now_ms() < end && !c->is_ended) {
        const int result = SSL_connect(c->ssl);
        if (result == 1) return true;
        note_end(c, result);
        client_step(&r->f, NULL);
    }
    return false;
}

static void tls_send(struct tls_client *c, struct str bytes) {
    assert_int_equal(SSL_write(c->ssl, bytes.ptr, (int)bytes.len), (int)bytes.len);
}

static void tls_step(struct rig *r, struct tls_client *c) {
    char bytes[16384];
    client_step(&r->f, NULL);
    if (c->is_ended) return;
    const int got = SSL_read(c->ssl, bytes, sizeof(bytes));
    if (got > 0)
        buf_put(&c->raw.in, bytes, (size_t)got);
    else
        note_end(c, got);
}

/* As client_wait. */
static bool tls_wait(struct rig *r, struct tls_client *c, const char *text) {
    const int64_t end = client_now_ms() + CLIENT_WAIT_MS;
    while (!(text ? client_has(&c->raw, text) : c->is_ended)) {
        if (client_now_ms() > end || (text && c->is_ended)) return false;
        tls_step(r, c);
    }
    return true;
}

static void tls_close(struct tls_client *c, bool is_polite) {
    if (is_polite) SSL_shutdown(c->ssl);
    SSL_free(c->ssl);
    client_close(&c->raw);
    ERR_clear_error();
}

static void ask(struct rig *r, struct tls_client *c) {
    buf_clear(&c->raw.in);
    tls_send(c, STR(ASK));
    assert_true(tls_wait(r, c, ANSWER));
}

static void expect_name(const struct tls_client *c, const char *name) {
    char got[64] = "";
    X509 *cert = SSL_get1_peer_certificate(c->ssl);
    assert_non_null(cert);
    X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, got, sizeof(got));
    assert_string_equal(got, name);
    X509_free(cert);
}

/* ---- tests ---- */

static void test_requests_are_served_over_both_versions(void **state) {
    (void)state;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct rig r;
    rig_init(&r, NULL);
    for (int i = 0; i < 2; i++) {
        struct tls_client c;
        SSL_CTX_set_min_proto_version(r.ctx, versions[i]);
        SSL_CTX_set_max_proto_version(r.ctx, versions[i]);
        assert_true(tls_connect(&r, &c, "\x08http/1.1"));
        assert_int_equal(SSL_version(c.ssl), versions[i]);
        const unsigned char *alpn;
        unsigned alpn_len;
        SSL_get0_alpn_selected(c.ssl, &alpn, &alpn_len);
        assert_int_equal(alpn_len, 8);
        for (int k = 0; k < 3; k++) ask(&r, &c);
        tls_send(&c, STR(HOLD));
        assert_true(client_until(&r.f, &r.f.held_count, 1));
        assert_true(http_head(r.f.held[0])->is_tls);
        fake_answer_held(&r.f);
        assert_true(tls_wait(&r, &c, "GET /hold"));
        tls_close(&c, true);
    }
    rig_deinit(&r);
}

static void test_old_versions_are_refused(void **state) {
    (void)state;
    struct rig r;
    struct tls_client c;
    rig_init(&r, NULL);
    SSL_CTX_set_security_level(r.ctx, 0);
    SSL_CTX_set_min_proto_version(r.ctx, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(r.ctx, TLS1_1_VERSION);
    assert_false(tls_connect(&r, &c, NULL));
    tls_close(&c, false);
    rig_deinit(&r);
}

static void test_alpn_selects_h2_when_it_is_offered(void **state) {
    (void)state;
    struct rig r;
    struct tls_client c;
    rig_init(&r, NULL);
    assert_true(tls_connect(&r, &c, "\x08http/1.1\x02h2"));
    const unsigned char *alpn;
    unsigned alpn_len;
    SSL_get0_alpn_selected(c.ssl, &alpn, &alpn_len);
    assert_int_equal(alpn_len, 2);
    assert_memory_equal(alpn, "h2", 2);
    tls_close(&c, true);
    rig_deinit(&r);
}

static void test_a_client_that_offers_only_another_protocol_is_refused(void **state) {
    (void)state;
    struct rig r;
    struct tls_client c;
    rig_init(&r, NULL);
    assert_false(tls_connect(&r, &c,
                             "\x03"
                             "ftp"));
    tls_close(&c, false);
    assert_true(tls_connect(&r, &c, NULL)); /* without ALPN it is HTTP/1.1 */
    ask(&r, &c);
    tls_close(&c, true);
    rig_deinit(&r);
}

static void test_large_bodies_go_both_ways(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    struct rig r;
    struct tls_client c;
    struct buf body;
    rig_init(&r, NULL);
    buf_init(&body, BYTES + 200);
    buf_printf(&body, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", BYTES);
    const size_t head = body.len;
    for (int i = 0; i < BYTES; i++) buf_put_char(&body, (char)('a' + i % 23));
    assert_true(tls_connect(&r, &c, NULL));
    SSL_set_mode(c.ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    struct str rest = buf_str(&body);
    for (int i = 0; rest.len && i < 100000; i++) {
        const int sent = SSL_write(c.ssl, rest.ptr, (int)rest.len);
        if (sent > 0) rest = str_skip(rest, (size_t)sent);
        client_step(&r.f, NULL);
    }
    for (int i = 0; c.raw.in.len < BYTES && i < 100000; i++) tls_step(&r, &c);
    client_run_ms(&r.f, 10);
    tls_step(&r, &c);
    assert_true(c.raw.in.len > BYTES);
    assert_memory_equal(c.raw.in.ptr + c.raw.in.len - BYTES, body.ptr + head, BYTES);
    buf_deinit(&body);
    tls_close(&c, true);
    rig_deinit(&r);
}

static void test_a_stream_arrives_as_it_is_flushed_and_ends_with_close_notify(void **state) {
    (void)state;
    struct rig r;
    struct tls_client c;
    rig_init(&r, NULL);
    assert_true(tls_connect(&r, &c, NULL));
    tls_send(&c, STR("GET /hold HTTP/1.0\r\n\r\n"));
    assert_true(client_until(&r.f, &r.f.held_count, 1));
    struct http_exchange *x = r.f.held[0];
    http_stream_begin(x, 200, NULL, 0);
    for (int i = 0; i < 3; i++) {
        http_stream_put(x, STR("event;"));
        http_stream_flush(x);
        assert_true(tls_wait(&r, &c, i == 0 ? "event;" : i == 1 ? "t;event;" : "t;event;event;"));
    }
    http_stream_end(x);
    assert_true(tls_wait(&r, &c, NULL));
    assert_true(c.is_polite); /* the client can detect a truncated response */
    tls_close(&c, true);
    rig_deinit(&r);
}

static void test_disconnects_are_noticed(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        struct tls_client c;
        assert_true(tls_connect(&r, &c, NULL));
        tls_send(&c, STR(HOLD));
        assert_true(client_until(&r.f, &r.f.held_count, 1));
        if (i == 0) { /* close_notify, with the socket still open */
            SSL_shutdown(c.ssl);
            assert_true(client_until(&r.f, &r.f.gones, 1));
        }
        tls_close(&c, false);
        assert_true(client_until(&r.f, &r.f.gones, i + 1));
    }
    rig_deinit(&r);
}

static void test_a_reloaded_certificate_is_used_for_new_connections_only(void **state) {
    (void)state;
    struct rig r;
    struct tls_client old, new;
    struct err err = {0};
    rig_init(&r, NULL);
    assert_true(tls_connect(&r, &old, NULL));
    expect_name(&old, "first");
    issue(&r.files, "second");
    assert_int_equal(tls_context_reload(r.tls, &err), ST_OK);
    assert_true(tls_connect(&r, &new, NULL));
    expect_name(&new, "second");
    ask(&r, &old);
    ask(&r, &new);
    tls_close(&new, true);

    FILE *broken = fopen(r.files.cert, "w");
    assert_non_null(broken);
    fputs("nonsense", broken);
    fclose(broken);
    assert_int_equal(tls_context_reload(r.tls, &err), ST_BAD);
    assert_non_null(strstr(err.text, r.files.cert));
    assert_true(tls_connect(&r, &new, NULL));
    expect_name(&new, "second");
    ask(&r, &old);
    tls_close(&new, true);
    tls_close(&old, true);
    rig_deinit(&r);
}

static void test_files_that_cannot_be_used_are_named(void **state) {
    (void)state;
    struct files files, others;
    struct tls_context *t = NULL;
    struct err err = {0};
    files_init(&files, NULL);
    assert_int_equal(tls_context_create(files.cert, files.key, &t, &err), ST_MISSING);
    assert_non_null(strstr(err.text, files.cert));
    issue(&files, "x");
    unlink(files.key);
    assert_int_equal(tls_context_create(files.cert, files.key, &t, &err), ST_MISSING);
    assert_non_null(strstr(err.text, files.key));
    files_init(&others, "y");
    assert_int_equal(tls_context_create(files.cert, others.key, &t, &err), ST_BAD);
    assert_non_null(strstr(err.text, others.key));
    assert_null(t);
    files_deinit(&files);
    files_deinit(&others);
}

static void test_an_encrypted_key_is_refused_without_asking_for_the_password(void **state) {
    (void)state;
    char password[] = "secret";
    struct files files;
    struct tls_context *t = NULL;
    struct err err = {0};
    files_init(&files, "x");
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    write_key(&files, key, password);
    EVP_PKEY_free(key);
    assert_int_equal(tls_context_create(files.cert, files.key, &t, &err), ST_BAD);
    assert_non_null(strstr(err.text, files.key));
    assert_non_null(strstr(err.text, "password"));
    assert_null(t);
    files_deinit(&files);
}

static void test_plaintext_on_a_tls_port_gets_a_sentence_and_is_closed(void **state) {
    (void)state;
    const struct http_limits limits = {.handshake_ms = 100};
    struct rig r;
    struct client plain, silent;
    rig_init(&r, &limits);
    client_connect(&plain, r.port);
    client_connect(&silent, r.port);
    client_send(&r.f, &plain, STR(ASK));
    assert_true(client_wait(&r.f, &plain, NULL));
    assert_true(client_has(&plain, "HTTP/1.1 400 Bad Request"));
    assert_true(client_has(&plain, "https://"));
    client_close(&plain);
    assert_true(client_wait(&r.f, &silent, NULL));
    client_close(&silent);
    client_run_ms(&r.f, 20);
    assert_int_equal(http_stats(r.f.server).connections, 0);
    rig_deinit(&r);
}

/* OpenSSL itself recognises only GET, POST, HEAD and PUT. */
static void test_every_method_gets_the_sentence_and_http2_gets_it_in_a_frame(void **state) {
    (void)state;
    static const char *const begins[] = {"DELETE /a HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n",
                                         "PATCH /a HTTP/1.1\r\n", "GET / HTTP/1.1\r\n",
                                         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    struct rig r;
    rig_init(&r, &(struct http_limits){0});
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        struct client plain;
        client_connect(&plain, r.port);
        client_send(&r.f, &plain, str_of(begins[i]));
        assert_true(client_wait(&r.f, &plain, NULL));
        const bool is_http2 = begins[i][1] == 'R';
        const struct str in = buf_str(&plain.in);
        assert_int_equal(str_starts(in, STR("HTTP/1.1 400 Bad Request")), !is_http2);
        assert_true(in.len > 40);
        assert_true(str_is(str_skip(in, in.len - 22), "address with https://\n"));
        if (is_http2) { /* SETTINGS, GOAWAY, INADEQUATE_SECURITY, and no byte too many */
            assert_int_equal(in.ptr[3], 4);
            assert_int_equal(in.ptr[12], 7);
            assert_int_equal(in.ptr[25], 12);
            assert_int_equal(in.len, 9 + 9 + (size_t)in.ptr[11]);
        }
        client_close(&plain);
    }
    client_run_ms(&r.f, 20);
    rig_deinit(&r);
}

/* ---- handshakes while the loop is late ---- */

enum { LATE_NS = 6000000 };
static uint64_t late_ns;
static uint64_t late_clock(void) { return late_ns += LATE_NS; }

/* A client without a socket. */
struct bench_client {
    struct fake f;
    SSL *ssl;
};

static void send_output(struct bench_client *c) {
    char *bytes;
    BIO *out = SSL_get_wbio(c->ssl);
    const long len = BIO_get_mem_data(out, &bytes);
    if (len > 0) conn_received(c->f.conn, (struct str){bytes, (size_t)len});
    (void)BIO_reset(out);
}

static void bench_connect(struct rig *r, struct bench_client *c, uint64_t address) {
    *c = (struct bench_client){.f = {.server = r->f.server, .room = SIZE_MAX}};
    buf_init(&c->f.out, FAKE_OUT_MAX);
    c->f.conn = conn_create(c->f.server, &fake_transport);
    assert_non_null(c->f.conn);
    c->f.conn->uv.handle.data = &c->f;
    struct account *a = accounts_get(&c->f.server->peers, (struct account_id){1, address});
    assert_non_null(a);
    conn_set_account(c->f.conn, a);
    conn_open(c->f.conn, r->tls);
    c->ssl = SSL_new(r->ctx);
    assert_non_null(c->ssl);
    SSL_set_bio(c->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(c->ssl);
    assert_int_equal(SSL_do_handshake(c->ssl), -1);
}

static void bench_disconnect(struct bench_client *c) {
    fake_disconnect(&c->f);
    buf_deinit(&c->f.out);
    SSL_free(c->ssl);
}

static void take_input(struct bench_client *c) {
    assert_int_equal(BIO_write(SSL_get_rbio(c->ssl), c->f.out.ptr, (int)c->f.out.len),
                     (int)c->f.out.len);
    buf_clear(&c->f.out);
}

/* A handshake is work: peers have their turn with it, as with requests. */
static void test_peers_have_their_turn_with_handshakes(void **state) {
    (void)state;
    enum { CLIENTS = 4 };
    struct rig r;
    struct bench_client c[CLIENTS];
    char text[1024] = "";
    rig_init(&r, NULL);
    for (uint64_t i = 0; i < CLIENTS; i++) bench_connect(&r, &c[i], i < CLIENTS - 1 ? 1 : 2);
    r.f.server->clock_ns = late_clock;
    for (int i = 0; i < CLIENTS; i++) send_output(&c[i]);
    assert_true(c[0].f.out.len > 0); /* the turn had just begun */
    for (int i = 1; i < CLIENTS; i++) assert_int_equal(c[i].f.out.len, 0);
    conns_verify(r.f.server);
    static const int order[] = {1, 3, 2}; /* the only one of peer 2 came last */
    for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++) {
        conns_run_deferred(&r.f.server->defer_idle); /* there is time for one */
        for (size_t j = 0; j < sizeof(order) / sizeof(order[0]); j++)
            assert_int_equal(c[order[j]].f.out.len > 0, j <= k);
    }
    take_input(&c[2]);
    assert_int_equal(SSL_do_handshake(c[2].ssl), 1);
    assert_int_equal(SSL_write(c[2].ssl, ASK, sizeof(ASK) - 1), sizeof(ASK) - 1);
    send_output(&c[2]);
    fake_run_loop(&c[2].f);
    take_input(&c[2]);
    assert_true(SSL_read(c[2].ssl, text, sizeof(text) - 1) > 0);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    for (int i = 0; i < CLIENTS; i++) bench_disconnect(&c[i]);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_are_served_over_both_versions),
        cmocka_unit_test(test_old_versions_are_refused),
        cmocka_unit_test(test_alpn_selects_h2_when_it_is_offered),
        cmocka_unit_test(test_a_client_that_offers_only_another_protocol_is_refused),
        cmocka_unit_test(test_large_bodies_go_both_ways),
        cmocka_unit_test(test_a_stream_arrives_as_it_is_flushed_and_ends_with_close_notify),
        cmocka_unit_test(test_disconnects_are_noticed),
        cmocka_unit_test(test_a_reloaded_certificate_is_used_for_new_connections_only),
        cmocka_unit_test(test_files_that_cannot_be_used_are_named),
        cmocka_unit_test(test_an_encrypted_key_is_refused_without_asking_for_the_password),
        cmocka_unit_test(test_plaintext_on_a_tls_port_gets_a_sentence_and_is_closed),
        cmocka_unit_test(test_every_method_gets_the_sentence_and_http2_gets_it_in_a_frame),
        cmocka_unit_test(test_peers_have_their_turn_with_handshakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
