extern "C" __global__ void kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
