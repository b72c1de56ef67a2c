/* api/tool_close.h - write the schema of a tool's arguments without names that it does not list.
 *
 * JSON Schema allows every other property where `additionalProperties` is not given. Tools are
 * seldom meant so: functions do not take other arguments, and a small model that may always write
 * one more property does not come to an end. So objects that list `properties` get
 * `"additionalProperties": false`. What satisfies the written schema satisfies the given one.
 *
 * That is true only of schemas without negation, exclusive alternatives and conjunctions; others
 * are written as they are.
 *
 * Thread: any.
 */
#ifndef API_TOOL_CLOSE_H
#define API_TOOL_CLOSE_H

struct buf;
struct json;

void tool_put_closed_schema(const struct json *schema, struct buf *out);

#endif
