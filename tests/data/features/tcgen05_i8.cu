extern "C" __global__ void kernel(unsigned tmem, unsigned long long a, unsigned long long b, unsigned descriptor, int use_d) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\ttcgen05.mma.cta_group::1.kind::i8 [%0], %1, %2, %3, p;\n\t}" ::"r"(tmem), "l"(a),
               "l"(b), "r"(descriptor), "r"(use_d)
               : "memory");
}
