// clc_tail_stealing: launches the kernels of this bundle. C and C++; needs the CUDA driver API.
//
//   clc_tail_stealing_launcher* launcher;
//   clc_tail_stealing_get("build", &launcher);                        // once per device; loads build/<kernel>.<target>.cubin
//   clc_tail_stealing_arguments arguments = clc_tail_stealing_defaults();    // the problem's own values
//   clc_tail_stealing_buffers buffers = { ... };                      // device addresses
//   clc_tail_stealing_run(launcher, &arguments, &buffers, NULL, NULL, 0, stream);
//
// Every call returns a status and none throws. Calls on one launcher may come from several threads. A CUDA context must
// be current, the same one as when the launcher was made. A run allocates nothing and waits for nothing, so that it can
// be captured into a CUDA graph; the arguments and addresses are those of the capture.
#ifndef CLC_TAIL_STEALING_H
#define CLC_TAIL_STEALING_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum clc_tail_stealing_status {
  CLC_TAIL_STEALING_OK = 0,
  CLC_TAIL_STEALING_INVALID_ARGUMENT = 1,     // an argument or a pointer that no kernel can take
  CLC_TAIL_STEALING_NO_CONTEXT = 2,           // no CUDA context is current on this thread
  CLC_TAIL_STEALING_IMAGE_MISSING = 3,        // a cubin that this device needs is not in the folder
  CLC_TAIL_STEALING_NO_RUNG = 4,              // no entry of the ladder runs here with these arguments
  CLC_TAIL_STEALING_RUNG_UNAVAILABLE = 5,     // the rung that was asked for does not run here with these arguments
  CLC_TAIL_STEALING_WORKSPACE_TOO_SMALL = 6,  // see clc_tail_stealing_workspace_bytes
  CLC_TAIL_STEALING_OUT_OF_MEMORY = 7,        // host memory
  CLC_TAIL_STEALING_DRIVER_ERROR = 8,         // the CUDA driver refused a call
  CLC_TAIL_STEALING_BAD_RUNTIME_FILE = 9      // runtime.json is there and does not say what is switched off
} clc_tail_stealing_status;

// The run-time arguments. Extents and strides count elements.
typedef struct clc_tail_stealing_arguments {
  int64_t m;  // at least 0
  int64_t n;  // at least 0
  int64_t k;  // at least 0
  int64_t batch;  // at least 0
  int64_t lda;  // at least 1
  int64_t batch_stride_a;  // at least 0
  int64_t ldb;  // at least 1
  int64_t batch_stride_b;  // at least 0
  int64_t ldd;  // at least 1
  int64_t batch_stride_d;  // at least 0
  float alpha;
  float beta;
} clc_tail_stealing_arguments;

// Device addresses. None may be null unless there is nothing to launch; one whose extent along K is 0 is not read, so
// any address that is aligned to 16 will do.
typedef struct clc_tail_stealing_buffers {
  const void* A;  // bfloat16, read
  const void* B;  // bfloat16, read
  void* D;  // bfloat16, written
} clc_tail_stealing_buffers;

typedef struct clc_tail_stealing_options {
  int sm_budget;     // SMs that the launch may fill; 0: all
  const char* rung;  // a rung of the ladder by name; null: the first that runs
} clc_tail_stealing_options;

typedef struct clc_tail_stealing_launcher clc_tail_stealing_launcher;

// The problem's own arguments.
clc_tail_stealing_arguments clc_tail_stealing_defaults(void);

// A launcher for the current context, with the images of `image_folder`. The caller destroys it. What runtime.json in
// the folder above switches off on this machine is no rung of the ladder; see launcher/runtime_file.h.
clc_tail_stealing_status clc_tail_stealing_create(const char* image_folder, clc_tail_stealing_launcher** launcher);
void clc_tail_stealing_destroy(clc_tail_stealing_launcher* launcher);

// The same, made once per context and shared by every caller of the process; never destroyed.
clc_tail_stealing_status clc_tail_stealing_get(const char* image_folder, clc_tail_stealing_launcher** launcher);

// Launches on `stream`. The workspace is device memory, aligned to 256, of clc_tail_stealing_workspace_bytes bytes, which no
// other launch uses at the same time; null where that is 0. `options` may be null. Extents of 0 launch nothing.
clc_tail_stealing_status clc_tail_stealing_run(const clc_tail_stealing_launcher* launcher, const clc_tail_stealing_arguments* arguments,
    const clc_tail_stealing_buffers* buffers, const clc_tail_stealing_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// The rung that clc_tail_stealing_run takes for the same arguments, and the workspace it needs.
clc_tail_stealing_status clc_tail_stealing_pick(const clc_tail_stealing_launcher* launcher, const clc_tail_stealing_arguments* arguments,
    const clc_tail_stealing_buffers* buffers, const clc_tail_stealing_options* options, const char** rung);
clc_tail_stealing_status clc_tail_stealing_workspace_bytes(const clc_tail_stealing_launcher* launcher, const clc_tail_stealing_arguments* arguments,
    const clc_tail_stealing_buffers* buffers, const clc_tail_stealing_options* options, size_t* bytes);

// One line about what clc_tail_stealing_run does for the same arguments: the rung, its kernels with schedule, cluster,
// image and residency, and why each rung before it does not run. Cut to `text_bytes`.
clc_tail_stealing_status clc_tail_stealing_describe(const clc_tail_stealing_launcher* launcher, const clc_tail_stealing_arguments* arguments,
    const clc_tail_stealing_buffers* buffers, const clc_tail_stealing_options* options, char* text, size_t text_bytes);

// Once for each new workspace, before its first run: zeroes what the kernels expect zero and leave zero.
clc_tail_stealing_status clc_tail_stealing_prepare_workspace(const clc_tail_stealing_launcher* launcher, const clc_tail_stealing_arguments* arguments,
    const clc_tail_stealing_buffers* buffers, const clc_tail_stealing_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// Clusters of a kernel that this device holds at once; 0 where no image of it loads or not even one fits.
clc_tail_stealing_status clc_tail_stealing_residency(const clc_tail_stealing_launcher* launcher, const char* kernel,
    int* max_active_clusters);

// The ladder, best first.
int clc_tail_stealing_rung_count(void);
const char* clc_tail_stealing_rung(int index);

const char* clc_tail_stealing_status_name(clc_tail_stealing_status status);
const char* clc_tail_stealing_last_message(void);  // of the calling thread's last call that failed

#ifdef __cplusplus
}
#endif

#endif  // CLC_TAIL_STEALING_H
