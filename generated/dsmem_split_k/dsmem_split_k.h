// dsmem_split_k: launches the kernels of this bundle. C and C++; needs the CUDA driver API.
//
//   dsmem_split_k_launcher* launcher;
//   dsmem_split_k_get("build", &launcher);                        // once per device; loads build/<kernel>.<target>.cubin
//   dsmem_split_k_arguments arguments = dsmem_split_k_defaults();    // the problem's own values
//   dsmem_split_k_buffers buffers = { ... };                      // device addresses
//   dsmem_split_k_run(launcher, &arguments, &buffers, NULL, NULL, 0, stream);
//
// Every call returns a status and none throws. Calls on one launcher may come from several threads. A CUDA context must
// be current, the same one as when the launcher was made. A run allocates nothing and waits for nothing, so that it can
// be captured into a CUDA graph; the arguments and addresses are those of the capture.
#ifndef DSMEM_SPLIT_K_H
#define DSMEM_SPLIT_K_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dsmem_split_k_status {
  DSMEM_SPLIT_K_OK = 0,
  DSMEM_SPLIT_K_INVALID_ARGUMENT = 1,     // an argument or a pointer that no kernel can take
  DSMEM_SPLIT_K_NO_CONTEXT = 2,           // no CUDA context is current on this thread
  DSMEM_SPLIT_K_IMAGE_MISSING = 3,        // a cubin that this device needs is not in the folder
  DSMEM_SPLIT_K_NO_RUNG = 4,              // no entry of the ladder runs here with these arguments
  DSMEM_SPLIT_K_RUNG_UNAVAILABLE = 5,     // the rung that was asked for does not run here with these arguments
  DSMEM_SPLIT_K_WORKSPACE_TOO_SMALL = 6,  // see dsmem_split_k_workspace_bytes
  DSMEM_SPLIT_K_OUT_OF_MEMORY = 7,        // host memory
  DSMEM_SPLIT_K_DRIVER_ERROR = 8,         // the CUDA driver refused a call
  DSMEM_SPLIT_K_BAD_RUNTIME_FILE = 9      // runtime.json is there and does not say what is switched off
} dsmem_split_k_status;

// The run-time arguments. Extents and strides count elements.
typedef struct dsmem_split_k_arguments {
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
} dsmem_split_k_arguments;

// Device addresses. None may be null unless there is nothing to launch; one whose extent along K is 0 is not read, so
// any address that is aligned to 16 will do.
typedef struct dsmem_split_k_buffers {
  const void* A;  // bfloat16, read
  const void* B;  // bfloat16, read
  void* D;  // bfloat16, written
} dsmem_split_k_buffers;

typedef struct dsmem_split_k_options {
  int sm_budget;     // SMs that the launch may fill; 0: all
  const char* rung;  // a rung of the ladder by name; null: the first that runs
} dsmem_split_k_options;

typedef struct dsmem_split_k_launcher dsmem_split_k_launcher;

// The problem's own arguments.
dsmem_split_k_arguments dsmem_split_k_defaults(void);

// A launcher for the current context, with the images of `image_folder`. The caller destroys it. What runtime.json in
// the folder above switches off on this machine is no rung of the ladder; see launcher/runtime_file.h.
dsmem_split_k_status dsmem_split_k_create(const char* image_folder, dsmem_split_k_launcher** launcher);
void dsmem_split_k_destroy(dsmem_split_k_launcher* launcher);

// The same, made once per context and shared by every caller of the process; never destroyed.
dsmem_split_k_status dsmem_split_k_get(const char* image_folder, dsmem_split_k_launcher** launcher);

// Launches on `stream`. The workspace is device memory, aligned to 256, of dsmem_split_k_workspace_bytes bytes, which no
// other launch uses at the same time; null where that is 0. `options` may be null. Extents of 0 launch nothing.
dsmem_split_k_status dsmem_split_k_run(const dsmem_split_k_launcher* launcher, const dsmem_split_k_arguments* arguments,
    const dsmem_split_k_buffers* buffers, const dsmem_split_k_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// The rung that dsmem_split_k_run takes for the same arguments, and the workspace it needs.
dsmem_split_k_status dsmem_split_k_pick(const dsmem_split_k_launcher* launcher, const dsmem_split_k_arguments* arguments,
    const dsmem_split_k_buffers* buffers, const dsmem_split_k_options* options, const char** rung);
dsmem_split_k_status dsmem_split_k_workspace_bytes(const dsmem_split_k_launcher* launcher, const dsmem_split_k_arguments* arguments,
    const dsmem_split_k_buffers* buffers, const dsmem_split_k_options* options, size_t* bytes);

// One line about what dsmem_split_k_run does for the same arguments: the rung, its kernels with schedule, cluster,
// image and residency, and why each rung before it does not run. Cut to `text_bytes`.
dsmem_split_k_status dsmem_split_k_describe(const dsmem_split_k_launcher* launcher, const dsmem_split_k_arguments* arguments,
    const dsmem_split_k_buffers* buffers, const dsmem_split_k_options* options, char* text, size_t text_bytes);

// Once for each new workspace, before its first run: zeroes what the kernels expect zero and leave zero.
dsmem_split_k_status dsmem_split_k_prepare_workspace(const dsmem_split_k_launcher* launcher, const dsmem_split_k_arguments* arguments,
    const dsmem_split_k_buffers* buffers, const dsmem_split_k_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// Clusters of a kernel that this device holds at once; 0 where no image of it loads or not even one fits.
dsmem_split_k_status dsmem_split_k_residency(const dsmem_split_k_launcher* launcher, const char* kernel,
    int* max_active_clusters);

// The ladder, best first.
int dsmem_split_k_rung_count(void);
const char* dsmem_split_k_rung(int index);

const char* dsmem_split_k_status_name(dsmem_split_k_status status);
const char* dsmem_split_k_last_message(void);  // of the calling thread's last call that failed

#ifdef __cplusplus
}
#endif

#endif  // DSMEM_SPLIT_K_H
