/* jobs/schema.c - the tables, and how those of an older version become those of this one.
 *
 * Step i turns version i into version i + 1, in one transaction with the new number
 * (PRAGMA user_version). An empty file is version 0. A step is never changed once it was released;
 * a new version is a new step at the end. README.md describes the tables.
 */
#include <stdio.h>

#include "jobs/batches.h"
#include "jobs/db_int.h"
#include "jobs/schema_int.h"

_Static_assert(BATCH_VALIDATING == 0 && BATCH_IN_PROGRESS == 2 && BATCH_FINALIZING == 3 &&
                   BATCH_CANCELLING == 6,
               "BATCH_IS_OPEN has these numbers, and so do databases on disk");

/* Small columns first: SQLite keeps the beginning of a row together and the rest in further pages.
 * Texts that are written at different times are in different tables, because changing a row writes
 * all of it again. */
static const char step_1[] =
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "INSERT INTO meta VALUES ('probe', 0);"

    "CREATE TABLE answers ("
    " number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " request_id TEXT NOT NULL, owner TEXT NOT NULL, codec TEXT NOT NULL, route TEXT NOT NULL,"
    " model TEXT NOT NULL, fingerprint TEXT NOT NULL, previous TEXT NOT NULL,"
    " conversation TEXT NOT NULL, seed INTEGER NOT NULL, created_s INTEGER NOT NULL,"
    " finished_s INTEGER NOT NULL, priority INTEGER NOT NULL, is_stored INTEGER NOT NULL,"
    " is_background INTEGER NOT NULL, lost_count INTEGER NOT NULL, state INTEGER NOT NULL,"
    " metadata TEXT NOT NULL) STRICT;"
    "CREATE INDEX answers_by_request ON answers (request_id);"
    "CREATE INDEX answers_by_owner ON answers (owner, codec) WHERE is_stored = 1;"
    "CREATE INDEX answers_open ON answers (model) WHERE state = 0;"
    "CREATE INDEX answers_ended ON answers (finished_s) WHERE state <> 0;"
    "CREATE TABLE answer_inputs (number INTEGER PRIMARY KEY, body TEXT NOT NULL,"
    " prompt TEXT NOT NULL, items TEXT NOT NULL) STRICT;"
    "CREATE TABLE answer_outputs (number INTEGER PRIMARY KEY, output TEXT NOT NULL,"
    " whole TEXT NOT NULL, pieces TEXT NOT NULL) STRICT;"

    "CREATE TABLE conversations (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE,"
    " owner TEXT NOT NULL, created_s INTEGER NOT NULL, metadata TEXT NOT NULL) STRICT;"
    "CREATE TABLE items (number INTEGER PRIMARY KEY AUTOINCREMENT, conversation INTEGER NOT NULL,"
    " id TEXT NOT NULL, json TEXT NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX items_by_id ON items (conversation, id);"
    "CREATE INDEX items_in_order ON items (conversation);"

    "CREATE TABLE files (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE,"
    " owner TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " created_s INTEGER NOT NULL, expires_s INTEGER NOT NULL, is_ready INTEGER NOT NULL) STRICT;"
    "CREATE INDEX files_by_owner ON files (owner);"
    "CREATE INDEX files_unready ON files (is_ready) WHERE is_ready = 0;"
    "CREATE INDEX files_by_age ON files (created_s);"
    "CREATE INDEX files_by_end ON files (expires_s) WHERE expires_s <> 0;"
    "CREATE TABLE chunks (file INTEGER NOT NULL, start INTEGER NOT NULL, bytes BLOB NOT NULL,"
    " PRIMARY KEY (file, start)) STRICT;"

    "CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " owner TEXT NOT NULL, kind INTEGER NOT NULL, state INTEGER NOT NULL, rest INTEGER NOT NULL,"
    " line_set INTEGER NOT NULL, endpoint TEXT NOT NULL, model TEXT NOT NULL,"
    " input_file TEXT NOT NULL, output_file TEXT NOT NULL, error_file TEXT NOT NULL,"
    " window TEXT NOT NULL, seed INTEGER NOT NULL, created_s INTEGER NOT NULL,"
    " in_progress_s INTEGER NOT NULL, expires_s INTEGER NOT NULL, finalizing_s INTEGER NOT NULL,"
    " completed_s INTEGER NOT NULL, failed_s INTEGER NOT NULL, expired_s INTEGER NOT NULL,"
    " cancelling_s INTEGER NOT NULL, cancelled_s INTEGER NOT NULL, total INTEGER NOT NULL,"
    " completed INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL,"
    " expired INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,"
    " answer_tokens INTEGER NOT NULL, output_after_s INTEGER NOT NULL, metadata TEXT NOT NULL,"
    " errors TEXT NOT NULL) STRICT;"
    "CREATE INDEX batches_by_owner ON batches (owner, kind);"
    "CREATE INDEX batches_open ON batches (number) WHERE " BATCH_IS_OPEN ";"
    "CREATE INDEX batches_by_input ON batches (input_file) WHERE " BATCH_IS_OPEN ";"
    "CREATE TABLE line_sets (number INTEGER PRIMARY KEY AUTOINCREMENT, batch INTEGER UNIQUE)"
    " STRICT;"
    "CREATE TABLE lines (line_set INTEGER NOT NULL, number INTEGER NOT NULL,"
    " turn INTEGER NOT NULL, custom_id TEXT NOT NULL, url TEXT NOT NULL, body TEXT NOT NULL,"
    " PRIMARY KEY (line_set, number)) STRICT;"
    "CREATE UNIQUE INDEX lines_by_custom_id ON lines (line_set, custom_id);"
    "CREATE INDEX lines_by_turn ON lines (line_set, turn, number);"
    "CREATE TABLE results (line_set INTEGER NOT NULL, number INTEGER NOT NULL,"
    " state INTEGER NOT NULL, status INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,"
    " cached_tokens INTEGER NOT NULL, answer_tokens INTEGER NOT NULL, request_id TEXT NOT NULL,"
    " body TEXT NOT NULL, PRIMARY KEY (line_set, number)) STRICT;";

static const char *const steps[] = {step_1};
enum { VERSION = sizeof(steps) / sizeof(*steps) };

static enum status run_step(struct store_db *db, int64_t version, struct err *err) {
    char text[48];
    snprintf(text, sizeof(text), "PRAGMA user_version = %lld", (long long)version + 1);
    TRY(db_begin(db, false, err));
    TRY(db_exec(db, steps[version], err));
    TRY(db_exec(db, text, err));
    return db_commit(db, err);
}

enum status db_migrate(struct store_db *db, struct err *err) {
    int64_t version = 0, tables = 0;
    TRY(db_get_int(db, "PRAGMA user_version", NO_VALUES, &version, err));
    TRY(db_get_int(db, "SELECT count(*) FROM sqlite_schema", NO_VALUES, &tables, err));
    if (version > VERSION || version < 0)
        return err_set(err, ST_BAD,
                       "%s: was written by a newer version of jitney (its format is %lld, this "
                       "version knows up to %d); use that version, or another folder",
                       db->path, (long long)version, VERSION);
    if (version == 0 && tables > 0)
        return err_set(err, ST_BAD, "%s: is a database of another program; use another folder",
                       db->path);
    for (; version < VERSION; version++) TRY(run_step(db, version, err));
    return ST_OK;
}
