#!/usr/bin/env python3
"""Writes a GGUF anew: FROM.gguf TO.gguf [q4_0|f32]. q4_0, the default: its 4-bit matrices in Q4_0, the
format that llama.cpp is fastest with. f32: every matrix in F32. Everything else stays as it is."""

import sys

import gguf


def encode(tensor, wanted):
    data, kind = tensor.data, tensor.tensor_type
    if wanted == "f32":
        return gguf.dequantize(data, kind), gguf.GGMLQuantizationType.F32
    if kind == gguf.GGMLQuantizationType.Q4_1:
        kind = gguf.GGMLQuantizationType.Q4_0
        data = gguf.quantize(gguf.dequantize(data, tensor.tensor_type), kind)
    return data, kind


def main():
    wanted = sys.argv[3] if len(sys.argv) > 3 else "q4_0"
    reader = gguf.GGUFReader(sys.argv[1])
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(sys.argv[2], architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture",
                                                            "general.file_type"):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if wanted == "f32"
                         else gguf.LlamaFileType.MOSTLY_Q4_0)
    for tensor in reader.tensors:
        data, kind = encode(tensor, wanted)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
