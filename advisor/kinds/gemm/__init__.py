"""Dense GEMM."""
