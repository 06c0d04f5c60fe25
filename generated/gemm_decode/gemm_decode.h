// gemm_decode: launches the kernels of this bundle. C and C++; needs the CUDA driver API.
//
//   gemm_decode_launcher* launcher;
//   gemm_decode_get("build", &launcher);                        // once per device; loads build/<kernel>.<target>.cubin
//   gemm_decode_arguments arguments = gemm_decode_defaults();    // the problem's own values
//   gemm_decode_buffers buffers = { ... };                      // device addresses
//   gemm_decode_run(launcher, &arguments, &buffers, NULL, NULL, 0, stream);
//
// Every call returns a status and none throws. Calls on one launcher may come from several threads. A CUDA context must
// be current, the same one as when the launcher was made. A run allocates nothing and waits for nothing, so that it can
// be captured into a CUDA graph; the arguments and addresses are those of the capture.
#ifndef GEMM_DECODE_H
#define GEMM_DECODE_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gemm_decode_status {
  GEMM_DECODE_OK = 0,
  GEMM_DECODE_INVALID_ARGUMENT = 1,     // an argument or a pointer that no kernel can take
  GEMM_DECODE_NO_CONTEXT = 2,           // no CUDA context is current on this thread
  GEMM_DECODE_IMAGE_MISSING = 3,        // a cubin that this device needs is not in the folder
  GEMM_DECODE_NO_RUNG = 4,              // no entry of the ladder runs here with these arguments
  GEMM_DECODE_RUNG_UNAVAILABLE = 5,     // the rung that was asked for does not run here with these arguments
  GEMM_DECODE_WORKSPACE_TOO_SMALL = 6,  // see gemm_decode_workspace_bytes
  GEMM_DECODE_OUT_OF_MEMORY = 7,        // host memory
  GEMM_DECODE_DRIVER_ERROR = 8,         // the CUDA driver refused a call
  GEMM_DECODE_BAD_RUNTIME_FILE = 9      // runtime.json is there and does not say what is switched off
} gemm_decode_status;

// The run-time arguments. Extents and strides count elements.
typedef struct gemm_decode_arguments {
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
} gemm_decode_arguments;

// Device addresses. None may be null unless there is nothing to launch; one whose extent along K is 0 is not read, so
// any address that is aligned to 16 will do.
typedef struct gemm_decode_buffers {
  const void* A;  // bfloat16, read
  const void* B;  // bfloat16, read
  void* D;  // bfloat16, written
  const void* bias;  // bfloat16, read
} gemm_decode_buffers;

typedef struct gemm_decode_options {
  int sm_budget;     // SMs that the launch may fill; 0: all
  const char* rung;  // a rung of the ladder by name; null: the first that runs
} gemm_decode_options;

typedef struct gemm_decode_launcher gemm_decode_launcher;

// The problem's own arguments.
gemm_decode_arguments gemm_decode_defaults(void);

// A launcher for the current context, with the images of `image_folder`. The caller destroys it. What runtime.json in
// the folder above switches off on this machine is no rung of the ladder; see launcher/runtime_file.h.
gemm_decode_status gemm_decode_create(const char* image_folder, gemm_decode_launcher** launcher);
void gemm_decode_destroy(gemm_decode_launcher* launcher);

// The same, made once per context and shared by every caller of the process; never destroyed.
gemm_decode_status gemm_decode_get(const char* image_folder, gemm_decode_launcher** launcher);

// Launches on `stream`. The workspace is device memory, aligned to 256, of gemm_decode_workspace_bytes bytes, which no
// other launch uses at the same time; null where that is 0. `options` may be null. Extents of 0 launch nothing.
gemm_decode_status gemm_decode_run(const gemm_decode_launcher* launcher, const gemm_decode_arguments* arguments,
    const gemm_decode_buffers* buffers, const gemm_decode_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// The rung that gemm_decode_run takes for the same arguments, and the workspace it needs.
gemm_decode_status gemm_decode_pick(const gemm_decode_launcher* launcher, const gemm_decode_arguments* arguments,
    const gemm_decode_buffers* buffers, const gemm_decode_options* options, const char** rung);
gemm_decode_status gemm_decode_workspace_bytes(const gemm_decode_launcher* launcher, const gemm_decode_arguments* arguments,
    const gemm_decode_buffers* buffers, const gemm_decode_options* options, size_t* bytes);

// One line about what gemm_decode_run does for the same arguments: the rung, its kernels with schedule, cluster,
// image and residency, and why each rung before it does not run. Cut to `text_bytes`.
gemm_decode_status gemm_decode_describe(const gemm_decode_launcher* launcher, const gemm_decode_arguments* arguments,
    const gemm_decode_buffers* buffers, const gemm_decode_options* options, char* text, size_t text_bytes);

// Once for each new workspace, before its first run: zeroes what the kernels expect zero and leave zero.
gemm_decode_status gemm_decode_prepare_workspace(const gemm_decode_launcher* launcher, const gemm_decode_arguments* arguments,
    const gemm_decode_buffers* buffers, const gemm_decode_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// Clusters of a kernel that this device holds at once; 0 where no image of it loads or not even one fits.
gemm_decode_status gemm_decode_residency(const gemm_decode_launcher* launcher, const char* kernel,
    int* max_active_clusters);

// The ladder, best first.
int gemm_decode_rung_count(void);
const char* gemm_decode_rung(int index);

const char* gemm_decode_status_name(gemm_decode_status status);
const char* gemm_decode_last_message(void);  // of the calling thread's last call that failed

#ifdef __cplusplus
}
#endif

#endif  // GEMM_DECODE_H
