/* net/tls.c - see net/tls.h and net/tls_int.h for the contracts.
 *
 * A session exchanges ciphertext with OpenSSL through a BIO of our own: its read takes from the
 * bytes that the caller has lent, its write appends to the caller's buffer.
 */
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "net/tls_int.h"

struct tls_context {
    char *cert_path, *key_path;
    SSL_CTX *ssl;    /* the newest; each session holds a reference to the one it started with */
    BIO_METHOD *bio; /* shared by all sessions */
};

struct tls_session {
    SSL *ssl;
    struct str in;   /* lent ciphertext that has not been read */
    struct buf *out; /* the caller's */
    char first;      /* byte that has arrived; 0: none */
    bool is_failed;  /* nothing may be written any more, not even close_notify */
};

/* ---- the BIO ---- */

static int bio_read(BIO *bio, char *to, int want) {
    struct tls_session *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (want <= 0) return 0;
    if (s->in.len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    const size_t got = s->in.len < (size_t)want ? s->in.len : (size_t)want;
    memcpy(to, s->in.ptr, got);
    s->in = str_skip(s->in, got);
    return (int)got;
}

static int bio_write(BIO *bio, const char *from, int bytes) {
    struct tls_session *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (bytes <= 0) return 0;
    buf_put(s->out, from, (size_t)bytes);
    return buf_status(s->out) == ST_OK ? bytes : -1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *ptr) {
    (void)bio;
    (void)number;
    (void)ptr;
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP;
}

static int bio_create(BIO *bio) {
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *make_bio_method(void) {
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "lent bytes");
    if (!m) return NULL;
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_ctrl(m, bio_ctrl);
    BIO_meth_set_create(m, bio_create);
    return m;
}

/* ---- contexts ---- */

/* h2 if the client offers it, else http/1.1. A client that wants something else is turned away, as
 * RFC 7301 has it: it must not take our bytes for another protocol's. */
static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned in_len, void *ctx) {
    (void)ssl;
    (void)ctx;
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* An encrypted key is refused: OpenSSL would ask for the password at the terminal and block. */
static int refuse_password(char *to, int room, int is_new, void *ctx) {
    (void)to, (void)room, (void)is_new;
    bool *was_asked = ctx;
    *was_asked = true;
    return -1;
}

static void configure(SSL_CTX *ssl) {
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(ssl, 0);
    SSL_CTX_set_alpn_select_cb(ssl, choose_alpn, NULL);
}

static enum status fail_with(struct err *err, const char *path, const char *what) {
    const char *reason = ERR_reason_error_string(ERR_peek_error()); /* the first is the cause */
    if (!file_exists(path)) return err_set(err, ST_MISSING, "%s: no such file", path);
    return err_set(err, ST_BAD, "%s: %s: %s", path, what, reason ? reason : "unknown reason");
}

static enum status load(const struct tls_context *t, SSL_CTX *ssl, struct err *err) {
    bool has_password = false;
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(ssl, refuse_password);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, &has_password);
    if (SSL_CTX_use_certificate_chain_file(ssl, t->cert_path) != 1)
        return fail_with(err, t->cert_path, "cannot read a certificate chain in PEM format");
    const int used = SSL_CTX_use_PrivateKey_file(ssl, t->key_path, SSL_FILETYPE_PEM);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    if (has_password)
        return err_set(err, ST_BAD, "%s: the key is encrypted; store it without a password",
                       t->key_path);
    if (used != 1)
        return fail_with(err, t->key_path,
                         "cannot read a private key in PEM format that matches the certificate");
    if (SSL_CTX_check_private_key(ssl) != 1)
        return fail_with(err, t->key_path, "the key does not match the certificate");
    return ST_OK;
}

enum status tls_context_reload(struct tls_context *t, struct err *err) {
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    if (!ssl) return err_set(err, ST_NOMEM, "no memory for TLS");
    configure(ssl);
    const enum status st = load(t, ssl, err);
    ERR_clear_error();
    if (st != ST_OK) {
        SSL_CTX_free(ssl);
        return st;
    }
    SSL_CTX_free(t->ssl);
    t->ssl = ssl;
    return ST_OK;
}

enum status tls_context_create(const char *cert_path, const char *key_path,
                               struct tls_context **out, struct err *err) {
    enum status st = ST_NOMEM;
    struct tls_context *t = mem_zalloc(sizeof(*t));
    if (!t) return err_set(err, ST_NOMEM, "no memory for TLS");
    t->cert_path = mem_dup(cert_path, strlen(cert_path));
    t->key_path = mem_dup(key_path, strlen(key_path));
    t->bio = make_bio_method();
    if (!t->cert_path || !t->key_path || !t->bio) {
        err_set(err, ST_NOMEM, "no memory for TLS");
        goto fail;
    }
    st = tls_context_reload(t, err);
    if (st != ST_OK) goto fail;
    *out = t;
    return ST_OK;
fail:
    tls_context_destroy(t);
    return st;
}

void tls_context_destroy(struct tls_context *t) {
    if (!t) return;
    SSL_CTX_free(t->ssl);
    BIO_meth_free(t->bio);
    mem_free(t->cert_path);
    mem_free(t->key_path);
    mem_free(t);
}

/* ---- sessions ---- */

struct tls_session *tls_session_create(struct tls_context *t, struct buf *out) {
    struct tls_session *s = mem_zalloc(sizeof(*s));
    if (!s) return NULL;
    BIO *bio = BIO_new(t->bio);
    s->ssl = SSL_new(t->ssl);
    if (!bio || !s->ssl) {
        BIO_free(bio);
        tls_session_destroy(s);
        return NULL;
    }
    s->out = out;
    BIO_set_data(bio, s);
    SSL_set_bio(s->ssl, bio, bio); /* owned by the SSL from here on */
    SSL_set_accept_state(s->ssl);
    return s;
}

void tls_session_destroy(struct tls_session *s) {
    if (!s) return;
    SSL_free(s->ssl);
    mem_free(s);
}

void tls_session_feed(struct tls_session *s, struct str cipher) {
    s->in = cipher;
    if (!s->first && cipher.len) s->first = cipher.ptr[0];
}

static enum tls_step step_of(struct tls_session *s, int result) {
    switch (SSL_get_error(s->ssl, result)) {
    case SSL_ERROR_NONE:
        return TLS_DONE;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return TLS_MORE;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_EOF;
    default:
        s->is_failed = true;
        ERR_clear_error();
        return TLS_FAILED;
    }
}

/* A client that begins with plain HTTP could not read a TLS alert; it gets a response that it can
 * read, and the connection ends. */
static void answer_plain_http(struct tls_session *s, bool is_http2, size_t out_len) {
    static const char body[] = "This port speaks TLS: begin the address with https://\n";
    s->out->len = out_len;
    if (is_http2) { /* SETTINGS, then GOAWAY with INADEQUATE_SECURITY and the sentence */
        static const char frames[] = "\0\0\0\4\0\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\0\0\0\0\0\14";
        buf_put(s->out, frames, sizeof(frames) - 1);
        if (buf_status(s->out) == ST_OK) s->out->ptr[out_len + 11] = 8 + sizeof(body) - 1;
        buf_put_text(s->out, body);
        return;
    }
    buf_printf(s->out,
               "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
               "Connection: close\r\n\r\n%s",
               sizeof(body) - 1, body);
}

/* A method of HTTP, or HTTP/2's preface, begins with a capital letter; no TLS record does. */
static bool is_method(char first) { return first >= 'A' && first <= 'Z'; }

enum tls_step tls_session_handshake(struct tls_session *s) {
    ERR_clear_error();
    const size_t out_len = s->out->len;
    const struct str in = s->in;
    const enum tls_step step = step_of(s, SSL_do_handshake(s->ssl));
    if (step == TLS_FAILED && is_method(s->first))
        answer_plain_http(s, str_starts(in, STR("PRI * HTTP/2")), out_len);
    return step;
}

bool tls_session_is_h2(const struct tls_session *s) {
    const unsigned char *name;
    unsigned len;
    SSL_get0_alpn_selected(s->ssl, &name, &len);
    return len == 2 && memcmp(name, "h2", 2) == 0;
}

enum tls_step tls_session_read(struct tls_session *s, char *plain, size_t plain_bytes,
                               size_t *got) {
    ERR_clear_error();
    return step_of(s, SSL_read_ex(s->ssl, plain, plain_bytes, got));
}

bool tls_session_write(struct tls_session *s, const char *plain, size_t plain_bytes) {
    if (plain_bytes == 0) return true;
    ERR_clear_error();
    size_t done = 0;
    const enum tls_step step = step_of(s, SSL_write_ex(s->ssl, plain, plain_bytes, &done));
    return step == TLS_DONE && done == plain_bytes;
}

void tls_session_close_notify(struct tls_session *s) {
    if (s->is_failed || !SSL_is_init_finished(s->ssl)) return;
    ERR_clear_error();
    SSL_shutdown(s->ssl);
    ERR_clear_error();
}
