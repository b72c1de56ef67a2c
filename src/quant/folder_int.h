/* quant/folder_int.h - what the files of the folder writer share. */
#ifndef QUANT_FOLDER_INT_H
#define QUANT_FOLDER_INT_H

#include "quant/folder.h"

struct safetensors_writer;

struct folder_writer {
    struct model_file *f;
    struct pack_format format;
    bool keeps_f32;                /* tensors of float32 stay as they are */
    struct folder_tensor *tensors; /* heap */
    size_t count, next;
    struct safetensors_writer *writer; /* from begin on */
    struct folder_out *out;            /* borrowed; from begin on */
};

#endif
