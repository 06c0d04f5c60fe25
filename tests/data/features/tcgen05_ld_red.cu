extern "C" __global__ void kernel(unsigned* out, unsigned tmem) {
  unsigned x, y, least;
  asm volatile("tcgen05.ld.red.sync.aligned.32x32b.x2.u32.min {%0, %1}, %2, [%3];" : "=r"(x), "=r"(y), "=r"(least) : "r"(tmem));
  out[0] = x + y + least;
}
