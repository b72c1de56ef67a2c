/* format/limits.h - limits of the counts and sizes in a model file.
 *
 * One table for all readers. Before memory is allocated for a count, the reader checks the count
 * against its limit and against the bytes that are left in the file. The limits are ten times or
 * more what the largest known models need.
 */
#ifndef FORMAT_LIMITS_H
#define FORMAT_LIMITS_H

enum {
    LIMIT_GGUF_KEYS = 65536,
    LIMIT_GGUF_TENSORS = 65536, /* of one file */
    LIMIT_GGUF_KEY_BYTES = 65535,
    LIMIT_GGUF_STRING_BYTES = 16 << 20,
    LIMIT_GGUF_LIST_ITEMS = 16 << 20,
    LIMIT_GGUF_LIST_STRINGS = 16 << 20, /* in all lists of a file: each costs 4 bytes of memory */
    LIMIT_GGUF_ALIGNMENT = 4096,

    LIMIT_SAFETENSORS_HEADER_BYTES = 100 * 1000 * 1000, /* as the reference reader has it */
    LIMIT_SAFETENSORS_HEADER_VALUES = 2 << 20,
    LIMIT_SAFETENSORS_HEADER_DEPTH = 8,
    LIMIT_SAFETENSORS_DIMS =
        8, /* of tensors that are skipped; a tensor that is read has at most 4 */

    LIMIT_TENSOR_NAME_BYTES = 512,
    LIMIT_TENSORS = 262144, /* of a whole model */
    LIMIT_PARTS = 1024,     /* files of a split model */

    LIMIT_BESIDE_BYTES = 256 << 20, /* config.json, tokenizer.json and their like */
    LIMIT_CONFIG_DEPTH = 8,         /* maps in maps of config.json that are shown as keys */
};

#endif
