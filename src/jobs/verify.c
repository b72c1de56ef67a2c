/* jobs/verify.c - checks that the rows of the store agree with each other. README.md numbers the
 * invariants. */
#include "jobs/db_int.h"
#include "jobs/schema_int.h"
#include "jobs/store.h"

/* Each statement counts the rows that break a rule. */
struct rule {
    const char *what, *sql;
};
#define COUNT_OF(state)                                                                            \
    "(SELECT count(*) FROM results r WHERE r.line_set = b.line_set AND r.state = " state ")"
#define WITHOUT_RESULT "(b.total - (SELECT count(*) FROM results r WHERE r.line_set = b.line_set))"

static const struct rule rules[] = {
    {"an answer has no input",
     "SELECT count(*) FROM answers WHERE number NOT IN (SELECT number FROM answer_inputs)"},
    {"an input has no answer",
     "SELECT count(*) FROM answer_inputs WHERE number NOT IN (SELECT number FROM answers)"},
    {"an answer has ended without an output, or is open with one",
     "SELECT count(*) FROM answers a LEFT JOIN answer_outputs o USING (number)"
     " WHERE (a.state = 0) <> (o.number IS NULL)"},
    {"an output has no answer",
     "SELECT count(*) FROM answer_outputs WHERE number NOT IN (SELECT number FROM answers)"},
    {"an item has no conversation",
     "SELECT count(*) FROM items WHERE conversation NOT IN (SELECT number FROM conversations)"},
    {"a chunk has no file",
     "SELECT count(*) FROM chunks WHERE file NOT IN (SELECT number FROM files)"},
    {"the chunks of a file do not add up to its bytes",
     "SELECT count(*) FROM files f WHERE id IS NOT NULL AND bytes <> coalesce("
     "(SELECT sum(length(c.bytes)) FROM chunks c WHERE c.file = f.number), 0)"},
    {"a chunk does not begin where the one before it ends",
     "SELECT count(*) FROM (SELECT c.start AS start, coalesce(lag(c.start + length(c.bytes))"
     " OVER (PARTITION BY c.file ORDER BY c.start), 0) AS expected FROM chunks c"
     " JOIN files f ON f.number = c.file WHERE f.id IS NOT NULL) WHERE start <> expected"},
    {"a batch that has not ended has no lines of its own",
     "SELECT count(*) FROM batches b WHERE " BATCH_IS_OPEN
     " AND NOT EXISTS (SELECT 1 FROM line_sets s WHERE s.number = b.line_set"
     " AND s.batch = b.number)"},
    {"a batch that has ended keeps its lines",
     "SELECT count(*) FROM line_sets s JOIN batches b ON b.number = s.batch"
     " WHERE NOT (b." BATCH_IS_OPEN ")"},
    {"a set of lines has no batch", "SELECT count(*) FROM line_sets WHERE batch IS NOT NULL"
                                    " AND batch NOT IN (SELECT number FROM batches)"},
    {"a line has no set",
     "SELECT count(*) FROM lines WHERE line_set NOT IN (SELECT number FROM line_sets)"},
    {"a result has no line",
     "SELECT count(*) FROM results r JOIN line_sets s ON s.number = r.line_set"
     " WHERE s.batch IS NOT NULL AND NOT EXISTS (SELECT 1 FROM lines l"
     " WHERE l.line_set = r.line_set AND l.number = r.number)"},
    {"a batch that runs does not have all its lines",
     "SELECT count(*) FROM batches b WHERE " BATCH_IS_OPEN " AND in_progress_s <> 0"
     " AND total <> (SELECT count(*) FROM lines l WHERE l.line_set = b.line_set)"},
    {"the counts of a batch are not those of its results",
     "SELECT count(*) FROM batches b WHERE " BATCH_IS_OPEN
     " AND (completed <> " COUNT_OF("1") " OR failed <> " COUNT_OF(
         "2") " OR cancelled <> " COUNT_OF("3") " + (rest = 3) * " WITHOUT_RESULT
                                                " OR expired <> " COUNT_OF(
                                                    "4") " + (rest = 4) * " WITHOUT_RESULT ")"},
    {"the tokens of a batch are not those of its results",
     "SELECT count(*) FROM batches b WHERE " BATCH_IS_OPEN " AND answer_tokens <> coalesce("
     "(SELECT sum(r.answer_tokens) FROM results r WHERE r.line_set = b.line_set), 0)"},
    {"a batch has more results than lines",
     "SELECT count(*) FROM batches WHERE in_progress_s <> 0"
     " AND completed + failed + cancelled + expired > total"},
    {"the output of a batch that has ended is not ready",
     "SELECT count(*) FROM batches b JOIN files f ON f.id IN (b.output_file, b.error_file)"
     " WHERE NOT (b." BATCH_IS_OPEN ") AND f.is_ready = 0"},
};

static enum status check_pages(struct store_db *db, struct err *err) {
    struct query q;
    enum status st = query_begin(&q, db, "PRAGMA integrity_check(1)", NO_VALUES, err);
    if (st == ST_OK) st = query_next(&q);
    if (st == ST_OK && !str_is(query_text(&q, 0), "ok"))
        st = err_set(err, ST_BAD, "%s: %.*s", db->path, STR_ARG(query_text(&q, 0)));
    query_end(&q);
    return st;
}

enum status store_check(struct store_db *db, struct err *err) {
    TRY(check_pages(db, err));
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        int64_t count = 0;
        TRY(db_get_int(db, rules[i].sql, NO_VALUES, &count, err));
        if (count)
            return err_set(err, ST_BAD, "%s: %s (%lld times)", db->path, rules[i].what,
                           (long long)count);
    }
    return ST_OK;
}
