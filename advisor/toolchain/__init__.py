"""CUDA to PTX and cubin. Imports only rooms below `toolchain`; knows nothing of a live GPU."""
