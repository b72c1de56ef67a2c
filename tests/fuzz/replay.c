/* tests/fuzz/replay.c - runs a fuzz target over the files of its corpus, without libFuzzer.
 *
 * usage: fuzz_X FOLDER-OR-FILE...   Prints how many inputs it ran; a crash is the failure.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 64 << 20 };

static unsigned run_file(const char *path) {
    struct buf input;
    struct err err = {0};
    buf_init(&input, INPUT_MAX);
    if (file_read(path, &input, &err) != ST_OK) {
        fprintf(stderr, "%s\n", err.text);
        buf_deinit(&input);
        return 0;
    }
    struct str bytes = buf_str(&input);
    LLVMFuzzerTestOneInput((const uint8_t *)bytes.ptr, bytes.len);
    buf_deinit(&input);
    return 1;
}

static unsigned run_dir(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return 0;
    unsigned count = 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char file[4096];
        if (e->d_name[0] == '.') continue;
        if (path_join(file, sizeof(file), path, e->d_name)) count += run_file(file);
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv) {
    unsigned count = 0;
    for (int i = 1; i < argc; i++)
        count += file_is_dir(argv[i]) ? run_dir(argv[i]) : run_file(argv[i]);
    printf("%u inputs\n", count);
    return count ? 0 : 1;
}
