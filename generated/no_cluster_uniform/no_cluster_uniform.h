// no_cluster_uniform: launches the kernels of this bundle. C and C++; needs the CUDA driver API.
//
//   no_cluster_uniform_launcher* launcher;
//   no_cluster_uniform_get("build", &launcher);                        // once per device; loads build/<kernel>.<target>.cubin
//   no_cluster_uniform_arguments arguments = no_cluster_uniform_defaults();    // the problem's own values
//   no_cluster_uniform_buffers buffers = { ... };                      // device addresses
//   no_cluster_uniform_run(launcher, &arguments, &buffers, NULL, NULL, 0, stream);
//
// Every call returns a status and none throws. Calls on one launcher may come from several threads. A CUDA context must
// be current, the same one as when the launcher was made. A run allocates nothing and waits for nothing, so that it can
// be captured into a CUDA graph; the arguments and addresses are those of the capture.
#ifndef NO_CLUSTER_UNIFORM_H
#define NO_CLUSTER_UNIFORM_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum no_cluster_uniform_status {
  NO_CLUSTER_UNIFORM_OK = 0,
  NO_CLUSTER_UNIFORM_INVALID_ARGUMENT = 1,     // an argument or a pointer that no kernel can take
  NO_CLUSTER_UNIFORM_NO_CONTEXT = 2,           // no CUDA context is current on this thread
  NO_CLUSTER_UNIFORM_IMAGE_MISSING = 3,        // a cubin that this device needs is not in the folder
  NO_CLUSTER_UNIFORM_NO_RUNG = 4,              // no entry of the ladder runs here with these arguments
  NO_CLUSTER_UNIFORM_RUNG_UNAVAILABLE = 5,     // the rung that was asked for does not run here with these arguments
  NO_CLUSTER_UNIFORM_WORKSPACE_TOO_SMALL = 6,  // see no_cluster_uniform_workspace_bytes
  NO_CLUSTER_UNIFORM_OUT_OF_MEMORY = 7,        // host memory
  NO_CLUSTER_UNIFORM_DRIVER_ERROR = 8,         // the CUDA driver refused a call
  NO_CLUSTER_UNIFORM_BAD_RUNTIME_FILE = 9      // runtime.json is there and does not say what is switched off
} no_cluster_uniform_status;

// The run-time arguments. Extents and strides count elements.
typedef struct no_cluster_uniform_arguments {
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
} no_cluster_uniform_arguments;

// Device addresses. None may be null unless there is nothing to launch; one whose extent along K is 0 is not read, so
// any address that is aligned to 16 will do.
typedef struct no_cluster_uniform_buffers {
  const void* A;  // bfloat16, read
  const void* B;  // bfloat16, read
  void* D;  // bfloat16, written
} no_cluster_uniform_buffers;

typedef struct no_cluster_uniform_options {
  int sm_budget;     // SMs that the launch may fill; 0: all
  const char* rung;  // a rung of the ladder by name; null: the first that runs
} no_cluster_uniform_options;

typedef struct no_cluster_uniform_launcher no_cluster_uniform_launcher;

// The problem's own arguments.
no_cluster_uniform_arguments no_cluster_uniform_defaults(void);

// A launcher for the current context, with the images of `image_folder`. The caller destroys it. What runtime.json in
// the folder above switches off on this machine is no rung of the ladder; see launcher/runtime_file.h.
no_cluster_uniform_status no_cluster_uniform_create(const char* image_folder, no_cluster_uniform_launcher** launcher);
void no_cluster_uniform_destroy(no_cluster_uniform_launcher* launcher);

// The same, made once per context and shared by every caller of the process; never destroyed.
no_cluster_uniform_status no_cluster_uniform_get(const char* image_folder, no_cluster_uniform_launcher** launcher);

// Launches on `stream`. The workspace is device memory, aligned to 256, of no_cluster_uniform_workspace_bytes bytes, which no
// other launch uses at the same time; null where that is 0. `options` may be null. Extents of 0 launch nothing.
no_cluster_uniform_status no_cluster_uniform_run(const no_cluster_uniform_launcher* launcher, const no_cluster_uniform_arguments* arguments,
    const no_cluster_uniform_buffers* buffers, const no_cluster_uniform_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// The rung that no_cluster_uniform_run takes for the same arguments, and the workspace it needs.
no_cluster_uniform_status no_cluster_uniform_pick(const no_cluster_uniform_launcher* launcher, const no_cluster_uniform_arguments* arguments,
    const no_cluster_uniform_buffers* buffers, const no_cluster_uniform_options* options, const char** rung);
no_cluster_uniform_status no_cluster_uniform_workspace_bytes(const no_cluster_uniform_launcher* launcher, const no_cluster_uniform_arguments* arguments,
    const no_cluster_uniform_buffers* buffers, const no_cluster_uniform_options* options, size_t* bytes);

// One line about what no_cluster_uniform_run does for the same arguments: the rung, its kernels with schedule, cluster,
// image and residency, and why each rung before it does not run. Cut to `text_bytes`.
no_cluster_uniform_status no_cluster_uniform_describe(const no_cluster_uniform_launcher* launcher, const no_cluster_uniform_arguments* arguments,
    const no_cluster_uniform_buffers* buffers, const no_cluster_uniform_options* options, char* text, size_t text_bytes);

// Once for each new workspace, before its first run: zeroes what the kernels expect zero and leave zero.
no_cluster_uniform_status no_cluster_uniform_prepare_workspace(const no_cluster_uniform_launcher* launcher, const no_cluster_uniform_arguments* arguments,
    const no_cluster_uniform_buffers* buffers, const no_cluster_uniform_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// Clusters of a kernel that this device holds at once; 0 where no image of it loads or not even one fits.
no_cluster_uniform_status no_cluster_uniform_residency(const no_cluster_uniform_launcher* launcher, const char* kernel,
    int* max_active_clusters);

// The ladder, best first.
int no_cluster_uniform_rung_count(void);
const char* no_cluster_uniform_rung(int index);

const char* no_cluster_uniform_status_name(no_cluster_uniform_status status);
const char* no_cluster_uniform_last_message(void);  // of the calling thread's last call that failed

#ifdef __cplusplus
}
#endif

#endif  // NO_CLUSTER_UNIFORM_H
