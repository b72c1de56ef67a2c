/* loadgen/tls.c - see loadgen/tls.h. */
#include "loadgen/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/mem.h"

struct loadgen_tls {
    SSL_CTX *context;
};

struct loadgen_tls_session {
    SSL *ssl;
    bool wants_input;
};

static const char *reason(void) {
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "unknown error";
}

static enum status read_authorities(SSL_CTX *context, const char *path, struct err *err) {
    const int ok = path ? SSL_CTX_load_verify_locations(context, path, NULL)
                        : SSL_CTX_set_default_verify_paths(context);
    if (ok == 1) return ST_OK;
    return err_set(err, ST_BAD, "%s: no certificates of authorities: %s",
                   path ? path : "the system's folder", reason());
}

enum status loadgen_tls_create(const struct loadgen_tls_options *options, struct loadgen_tls **out,
                               struct err *err) {
    struct loadgen_tls *tls = mem_zalloc(sizeof(*tls));
    if (tls) tls->context = SSL_CTX_new(TLS_client_method());
    enum status st = tls && tls->context ? ST_OK : err_set(err, ST_NOMEM, "out of memory for TLS");
    if (st == ST_OK) {
        SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
        SSL_CTX_set_verify(tls->context, options->is_unchecked ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                           NULL);
        SSL_CTX_set_mode(tls->context,
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        if (!options->is_unchecked) st = read_authorities(tls->context, options->authorities, err);
    }
    if (st == ST_OK)
        *out = tls;
    else
        loadgen_tls_destroy(tls);
    return st;
}

void loadgen_tls_destroy(struct loadgen_tls *tls) {
    if (!tls) return;
    SSL_CTX_free(tls->context);
    mem_free(tls);
}

/* The certificate must be for this host; a name is also sent, so that the server can choose. */
static bool set_host(SSL *ssl, const char *host) {
    unsigned char address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

struct loadgen_tls_session *loadgen_tls_open(struct loadgen_tls *tls, int fd, const char *host) {
    struct loadgen_tls_session *s = mem_zalloc(sizeof(*s));
    if (!s) return NULL;
    s->ssl = SSL_new(tls->context);
    if (!s->ssl || SSL_set_fd(s->ssl, fd) != 1 || !set_host(s->ssl, host)) {
        loadgen_tls_close(s);
        return NULL;
    }
    SSL_set_connect_state(s->ssl);
    return s;
}

void loadgen_tls_close(struct loadgen_tls_session *s) {
    if (!s) return;
    SSL_free(s->ssl);
    mem_free(s);
}

static int64_t fail(struct err *err, const char *why) {
    err_set(err, ST_UNAVAILABLE, "TLS: %s", why);
    errno = EPROTO;
    return -1;
}

/* What a call that has given `result` means. */
static int64_t failure(struct loadgen_tls_session *s, int result, struct err *err) {
    const int code = errno; /* of the socket */
    const long verified = SSL_get_verify_result(s->ssl);
    s->wants_input = false;
    switch (SSL_get_error(s->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        s->wants_input = true;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        errno = code ? code : ECONNRESET;
        return -1;
    default:
        break;
    }
    if (SSL_get_verify_mode(s->ssl) != SSL_VERIFY_NONE && verified != X509_V_OK)
        return fail(err, X509_verify_cert_error_string(verified));
    return fail(err, reason());
}

int64_t loadgen_tls_send(struct loadgen_tls_session *s, const char *bytes, size_t len,
                         struct err *err) {
    size_t done = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_write_ex(s->ssl, bytes, len, &done);
    return result == 1 ? (int64_t)done : failure(s, result, err);
}

int64_t loadgen_tls_receive(struct loadgen_tls_session *s, char *bytes, size_t len,
                            struct err *err) {
    size_t done = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_read_ex(s->ssl, bytes, len, &done);
    return result == 1 ? (int64_t)done : failure(s, result, err);
}

bool loadgen_tls_wants_input(const struct loadgen_tls_session *s) { return s->wants_input; }
