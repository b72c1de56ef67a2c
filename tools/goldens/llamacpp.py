"""llama.cpp through its C interface, from the shared library inside the `xllamacpp` package.

The package exports the C functions but no Python names for them. Parameter structs are passed as
opaque bytes that llama.cpp itself fills; the few fields changed here are found at the offsets of
the pinned version, and the defaults around them are checked so that another version is refused
rather than misread.
"""

import ctypes
import importlib.util
import pathlib
import struct

import numpy as np

_CONTEXT_OFFSETS = {"n_ctx": 0, "n_batch": 4, "n_ubatch": 8, "n_threads": 28, "n_threads_batch": 32,
                    "pooling_type": 44, "flash_attn_type": 52, "type_k": 104, "type_v": 108}
_CONTEXT_DEFAULTS = {"n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_threads": 4,
                     "n_threads_batch": 4, "pooling_type": -1, "flash_attn_type": -1,
                     "type_k": 1, "type_v": 1}
_EMBEDDINGS_AT = 136
GGML_F32, GGML_F16 = 0, 1


class _Params(ctypes.Structure):
    """Larger than any of the parameter structs: callers copy it, llama.cpp reads its start."""

    _fields_ = [("bytes", ctypes.c_ubyte * 512)]


class _Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32),
                ("token", ctypes.POINTER(ctypes.c_int32)),
                ("embd", ctypes.POINTER(ctypes.c_float)),
                ("pos", ctypes.POINTER(ctypes.c_int32)),
                ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
                ("logits", ctypes.POINTER(ctypes.c_int8))]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_FLOATS = ctypes.POINTER(ctypes.c_float)
_PROTOTYPES = {
    "llama_log_set": (None, [_LOG, ctypes.c_void_p]),
    "llama_model_default_params": (_Params, []),
    "llama_context_default_params": (_Params, []),
    "llama_model_load_from_file": (ctypes.c_void_p, [ctypes.c_char_p, _Params]),
    "llama_init_from_model": (ctypes.c_void_p, [ctypes.c_void_p, _Params]),
    "llama_model_get_vocab": (ctypes.c_void_p, [ctypes.c_void_p]),
    "llama_vocab_n_tokens": (ctypes.c_int32, [ctypes.c_void_p]),
    "llama_model_n_embd": (ctypes.c_int32, [ctypes.c_void_p]),
    "llama_batch_init": (_Batch, [ctypes.c_int32] * 3),
    "llama_batch_free": (None, [_Batch]),
    "llama_decode": (ctypes.c_int32, [ctypes.c_void_p, _Batch]),
    "llama_encode": (ctypes.c_int32, [ctypes.c_void_p, _Batch]),
    "llama_get_memory": (ctypes.c_void_p, [ctypes.c_void_p]),
    "llama_memory_clear": (None, [ctypes.c_void_p, ctypes.c_bool]),
    "llama_get_logits_ith": (_FLOATS, [ctypes.c_void_p, ctypes.c_int32]),
    "llama_get_embeddings_ith": (_FLOATS, [ctypes.c_void_p, ctypes.c_int32]),
    "llama_get_embeddings_seq": (_FLOATS, [ctypes.c_void_p, ctypes.c_int32]),
    "llama_free": (None, [ctypes.c_void_p]),
    "llama_model_free": (None, [ctypes.c_void_p]),
    "llama_tokenize": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32,
                                        ctypes.POINTER(ctypes.c_int32), ctypes.c_int32,
                                        ctypes.c_bool, ctypes.c_bool]),
}


def _load_library():
    spec = importlib.util.find_spec("xllamacpp")
    folder = pathlib.Path(spec.origin).parent
    library = ctypes.CDLL(str(next(folder.glob("*.so"))))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Model:
    """A GGUF in llama.cpp with one sequence. `kv_f32` keeps keys and values in float32."""

    def __init__(self, path, n_ctx=128, threads=2, kv_f32=True, embeddings=False, verbose=False):
        self.lib = _load_library()
        self._log = _LOG((lambda level, text, _: print(text.decode(), end="")) if verbose
                         else (lambda level, text, _: None))
        self.lib.llama_log_set(self._log, None)
        self.model = self.lib.llama_model_load_from_file(
            str(path).encode(), self.lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp refuses {path}")
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.vocab)
        self.n_embd = self.lib.llama_model_n_embd(self.model)
        params = self._context_params(n_ctx, threads, kv_f32, embeddings)
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context for {path}")

    def _context_params(self, n_ctx, threads, kv_f32, embeddings):
        params = self.lib.llama_context_default_params()
        fields = dict(_CONTEXT_DEFAULTS)
        for name, value in fields.items():
            found = struct.unpack_from("<i", params.bytes, _CONTEXT_OFFSETS[name])[0]
            assert found == value, f"llama_context_params.{name} is {found}: another version?"
        fields |= {"n_ctx": n_ctx, "n_batch": n_ctx, "n_ubatch": min(n_ctx, 512),
                   "n_threads": threads, "n_threads_batch": threads}
        if kv_f32:
            fields |= {"flash_attn_type": 0, "type_k": GGML_F32, "type_v": GGML_F32}
        for name, value in fields.items():
            struct.pack_into("<i", params.bytes, _CONTEXT_OFFSETS[name], value)
        params.bytes[_EMBEDDINGS_AT] = embeddings
        return params

    def tokenize(self, text, special=False):
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = self.lib.llama_tokenize(self.vocab, data, len(data), ids, len(ids), False, special)
        assert count >= 0
        return list(ids[:count])

    def _batch(self, ids):
        batch = self.lib.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        return batch

    def logits(self, ids):
        """(tokens, vocabulary) for a sequence from its start."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        batch = self._batch(ids)
        assert self.lib.llama_decode(self.context, batch) == 0
        rows = [np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i),
                                      (self.n_vocab,)).copy() for i in range(len(ids))]
        self.lib.llama_batch_free(batch)
        return np.stack(rows)

    def embedding(self, ids):
        """(1, width): the pooled vector of a sequence."""
        batch = self._batch(ids)
        assert self.lib.llama_encode(self.context, batch) == 0
        vector = np.ctypeslib.as_array(self.lib.llama_get_embeddings_seq(self.context, 0),
                                       (self.n_embd,)).copy()
        self.lib.llama_batch_free(batch)
        return vector[None]

    def close(self):
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)
